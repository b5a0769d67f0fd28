"""--fill: what each rank is, in its arguments."""

from __future__ import annotations

import pytest
from launching import through_rsh

WORDS = "{rank}/{size} {local_rank}/{local_size} {node_rank}/{nnodes} {hosts} {{rank}}"


def test_ranks_of_two_hosts_and_programs_have_their_own_arguments(run):
    first = [*through_rsh("alpha:2", "beta:1"), "--fill", "-n", "2", "echo", WORDS]
    ended = run([*first, ":", "-n", "1", "echo", "second {rank} of {size}"])
    expected = ["0/3 0/2 0/2 alpha,beta {rank}", "1/3 1/2 0/2 alpha,beta {rank}", "second 2 of 3"]
    assert (ended.code, ended.lines) == (0, expected), ended.err


def test_where_ranks_meet_is_what_their_variables_say(run):
    script = 'test "$0" = "$MASTER_ADDR:$MASTER_PORT" && echo same'
    ended = run(["-n", "2", "--fill", "sh", "-c", script, "{master_addr}:{master_port}"])
    assert (ended.code, ended.lines) == (0, ["same", "same"]), ended.err


def test_a_shell_reads_no_value(run):
    """Values are words of the command, however odd the argument is."""
    ended = run(["-n", "1", "--fill", "printf", "%s|", "a b;{rank}", "$(id){size}", "'{rank}"])
    assert ended.out == b"a b;0|$(id)1|'0|"


@pytest.mark.parametrize("words", [["-n", "1"], ["--dialect", "hydra", "-n", "1"]], ids=["mpirun", "hydra"])
def test_without_the_option_braces_stay(run, words):
    assert run([*words, "echo", "{rank} {any}"]).out == b"{rank} {any}\n"


def test_a_name_that_stands_for_nothing_starts_nothing(run, tmp_path):
    ended = run(["-n", "1", "--fill", "touch", str(tmp_path / "{rnak}")])
    assert (ended.code, list(tmp_path.glob("*rnak*"))) == (1, [])
    assert ended.err.startswith("mslaunch: --fill: {rnak} in ") and len(ended.err.splitlines()) == 2
