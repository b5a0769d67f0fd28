"""Launches in the dialect of hydra: placement, variables, and ends, on this host and on others."""

from __future__ import annotations

import os
import sys

import pytest
from launching import PROGRAMS

THERE = ["--dialect", "hydra", "-launcher-exec", str(PROGRAMS / "rsh"), "-agent-python", sys.executable]
TELL = 'echo "$OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_LOCAL_RANK/$OMPI_COMM_WORLD_LOCAL_SIZE ${MINE-none}"'
FORWARDED = {"MINE": "here"}


def test_ranks_go_round_the_hosts_and_get_the_environment(run):
    result = run([*THERE, "-hosts", "aa:2,bb", "-n", "5", "sh", "-c", TELL], env=FORWARDED)
    assert result.code == 0, result.err
    assert result.lines == ["0 0/4 here", "1 1/4 here", "2 0/1 here", "3 2/4 here", "4 3/4 here"]


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED, needs root: hosts with names of their own")
def test_each_rank_is_on_its_host(run):
    result = run([*THERE, "-hosts", "aa:2,bb", "-n", "5", "-l", "uname", "-n"])
    assert result.lines == ["[0] aa", "[1] aa", "[2] bb", "[3] aa", "[4] aa"]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["-genvnone"], "none"),
        (["-genvlist", "MINE,OTHER"], "here"),
        (["-genvlist", "OTHER"], "none"),
        (["-genvexcl", "MINE"], "none"),
        (["-genvnone", "-genv", "MINE", "said"], "said"),
        (["-genvall", "-envnone"], "none"),
    ],
)
def test_variables_for_other_hosts_can_be_chosen(run, words, seen):
    result = run([*THERE, "-hosts", "aa", *words, "sh", "-c", TELL], env=FORWARDED)
    assert result.lines == [f"0 0/1 {seen}"], result.err


def test_local_ranks_inherit_all_variables(run):
    assert run(["--dialect", "hydra", "-genvnone", "sh", "-c", TELL], env=FORWARDED).lines == ["0 0/1 here"]


def test_programs_from_a_file_on_hosts_from_a_file(run, tmp_path):
    (tmp_path / "hosts").write_text("aa:2\nbb user=joe\n")
    (tmp_path / "programs").write_text("-n 1 echo first\n-n 2 -env WHAT second printenv WHAT\n")
    result = run([*THERE, "-f", "hosts", "-l", "-configfile", "programs"])
    assert result.lines == ["[0] first", "[1] second", "[2] second"], result.err


def test_the_first_failure_ends_the_job_and_gives_its_code(run):
    assert run(["--dialect", "hydra", "-n", "1", "sleep", "100", ":", "-n", "1", "sh", "-c", "exit 7"]).code == 7


def test_without_cleanup_the_others_go_on(run):
    words = ["-disable-auto-cleanup", "-n", "1", "sh", "-c", "kill -9 $$", ":", "-n", "1", "sh", "-c", "echo lives"]
    assert run(["--dialect", "hydra", *words]).out == b"lives\n"


def test_ranks_are_bound_to_one_core_after_the_other_and_begin_again(run):
    cores = len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})
    numbers = "[os.environ['OMPI_COMM_WORLD_RANK'], *sorted(os.sched_getaffinity(0))]"
    text = f"import os; os.write(1, (' '.join(map(str, {numbers})) + '\\n').encode())"
    words = ["-n", str(cores + 1), "-bind-to", "core", sys.executable, "-S", "-c", text]
    result = run(["--dialect", "hydra", *words])
    bound = {int(rank): set(cpus) for rank, *cpus in map(str.split, result.out.decode().splitlines())}
    assert bound[cores] == bound[0], result.err
    assert sum(map(len, bound.values())) - len(bound[0]) == len(set().union(*bound.values())), "no cpu is given twice"


def _siblings(cpu):
    try:
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
            return file.read().strip()
    except OSError:
        return str(cpu)
