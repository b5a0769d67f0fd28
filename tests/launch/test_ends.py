"""The end of a job: the failure that counts, the exit code, and the report."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from launching import environment, program, through_rsh, wait_until

TWO = through_rsh("alpha:2", "beta:2")
WHERE = pytest.mark.parametrize("where", [["--oversubscribe"], TWO], ids=["local", "two hosts"])


@WHERE
@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("3", 3, "ended with exit code 3"),
        ("255", 255, "ended with exit code 255"),
        ("SIGKILL", 137, "was ended by SIGKILL (killed)"),
        ("SIGSEGV", 139, "was ended by SIGSEGV (segmentation fault)"),
        ("SIGTERM", 143, "was ended by SIGTERM (terminated)"),
    ],
)
def test_the_failure_of_one_rank_ends_the_job(run, where, how, code, words):
    """The command has its exit code, its last lines are quoted, and the other ranks are listed as ended by mslaunch."""
    ended = run([*where, "-n", "4", "--output-filename", "logs", *program("die", how, 2)])
    assert ended.code == code
    head = re.search(r"^mslaunch: (rank 2 .*)\n((?:  .*\n)*)\Z", ended.err, re.M)
    assert head, ended.err
    assert re.fullmatch(rf"rank 2 {re.escape(words)} on \S+, after \d+\.\d s", head[1])
    assert head[2].splitlines() == [
        "  | last words of 2",
        "  log: logs/1/rank.2/stderr",
        "  ended by mslaunch: ranks 0-1, 3",
    ]


def test_quoted_lines_are_bounded_and_printable(run):
    ended = run(["-n", "1", "sh", "-c", r"for i in $(seq 1 500); do printf '\033[31mline %d\n' $i >&2; done; exit 9"])
    quoted = [line for line in ended.err.splitlines() if line.startswith("  | ")]
    assert quoted == [f"  | ?[31mline {number}" for number in range(481, 501)]
    assert ended.code == 9


@WHERE
def test_the_first_failure_counts(run, where):
    """The other ranks then fail with codes of their own, which do not count."""
    script = 'trap "exit 44" TERM; [ $OMPI_COMM_WORLD_RANK = 1 ] && exit 7; while :; do sleep 0.05; done'
    ended = run([*where, "-n", "4", "sh", "-c", script])
    assert ended.code == 7
    assert "rank 1 ended with exit code 7" in ended.err
    assert "ended by mslaunch: ranks 0, 2-3" in ended.err
    assert "failed as well" not in ended.err


@WHERE
def test_failures_that_need_not_end_the_job(run, where):
    """orte_abort_on_non_zero_status 0: the others go on; the first code is kept.

    They wait until the launcher knows of the first: hosts tell it of their ranks in no order.
    """
    known = """until grep -q '"rank_ended".* "rank": 1,' events; do sleep 0.05; done"""
    script = f"[ $RANK = 1 ] && exit 5; {known}; [ $RANK = 2 ] && exit 6; echo done"
    words = ["--events", "events", "-mca", "orte_abort_on_non_zero_status", "0", "sh", "-c", script]
    ended = run([*where, "-n", "4", *words])
    assert ended.code == 5
    assert ended.lines == ["done", "done"]
    assert "rank 1 ended with exit code 5" in ended.err
    assert "failed as well: rank 2" in ended.err


@WHERE
def test_a_missing_program_is_reported(run, where):
    ended = run([*where, "-n", "4", "no-such-program"])
    assert ended.code == 127
    assert ended.err.count("the program 'no-such-program' was not found") == 1, ended.err
    assert "-x PATH" in ended.err


@WHERE
def test_a_missing_script_is_reported(run, where, tmp_path):
    ended = run([*where, "-n", "4", "python3", "-u", "exmples/net.py"])
    assert ended.code == 127 and ended.out == b""
    assert ended.err.count(f"there is no file {tmp_path}/exmples/net.py for python3") == 1, ended.err
    assert "not started: ranks 0-3" in ended.err and "--preload-files" in ended.err


@WHERE
def test_a_missing_path_is_reported(run, where):
    ended = run([*where, "-n", "2", "./no/such/program"])
    assert ended.code == 127
    assert ended.err.count("does not exist") == 1


@WHERE
def test_a_missing_working_directory_is_reported(run, where):
    ended = run([*where, "-n", "4", "--wdir", "/no/such/place", "true"])
    assert ended.code == 126
    assert ended.err.count("the working directory /no/such/place does not exist") == 1, ended.err


@WHERE
@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("echo\n", 0o644, "not executable"),
        ("\0\0\0", 0o755, "is no program for this machine"),
        ("#!/no/such/interpreter\n", 0o755, "the interpreter that"),
    ],
)
def test_a_file_that_cannot_be_executed_is_reported(run, where, tmp_path, text, mode, words):
    (tmp_path / "thing").write_text(text)
    (tmp_path / "thing").chmod(mode)
    ended = run([*where, "-n", "2", "./thing"])
    assert ended.code == 126
    assert ended.err.count(words) == 1, ended.err


@WHERE
def test_one_of_two_programs_is_missing(run, where, tmp_path):
    """Ranks of the other program that have started are ended."""
    words = ["-n", "1", *program("wait"), ":", "-n", "1", "no-such-program"]
    ended = run([*where, *words])
    assert ended.code == 127
    assert "ended by mslaunch: rank 0" in ended.err


@WHERE
def test_the_time_limit_ends_the_job(run, where):
    ended = run([*where, "-n", "2", "--timeout", "3", *program("wait")])
    assert ended.code == 110
    assert "the job was still running after 3 seconds (--timeout)" in ended.err
    assert "ended by mslaunch: ranks 0-1" in ended.err


def test_quiet(run):
    ended = run(["-q", "-n", "2", "--oversubscribe", *program("die", 3, 1)])
    assert (ended.code, ended.err) == (3, "last words of 1\n")


def test_a_job_that_ends_well_prints_nothing(run):
    ended = run(["-n", "1", "true"])
    assert ended == (0, b"", "")


def test_children_of_ranks_are_ended(start):
    """The daemon of a rank that failed is gone as well."""
    job = start(["-n", "1", "sh", "-c", '"$@" & sleep 0.3; exit 4', "sh", *program("daemonize")])
    assert job.end().code == 4
    job.wait_gone()


@pytest.mark.slow
@WHERE
def test_an_orphan_that_holds_the_output(start, where):
    """The rank has ended, its child holds standard output: five seconds of silence, then the job has ended."""
    job = start([*where, "-n", "1", *program("orphan")])
    job.expect(b"orphan")
    (child,) = job.pids("orphan")
    ended = job.end(15)
    assert ended.code == 0
    assert not os.path.exists(f"/proc/{child}")


def test_an_orphan_while_the_job_is_ended(start):
    """The limit is half a second then."""
    job = start(
        [
            "-n",
            "2",
            "--oversubscribe",
            "sh",
            "-c",
            '[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 3; exec "$@"',
            "sh",
            *program("orphan"),
        ]
    )
    assert job.end(4.5).code == 3


@WHERE
@pytest.mark.parametrize("code", [0, 3])
def test_an_orphan_that_is_never_silent(start, where, code):
    """It prints for ever; if it is not the rank's failure that ends the job, it is whoever types Ctrl-C."""
    orphan = "while kill -0 $$ 2>&-; do :; done; while :; do echo alone; done"
    job = start([*where, "--grace", "0.2", "-n", "1", "sh", "-c", f"({orphan}) & exit {code}"])
    job.expect(b"alone")
    if code == 0:
        job.send(signal.SIGINT)
    assert job.end(15).code == (code or 1)
    job.wait_gone()


@pytest.mark.limit(600)
def test_a_hundred_launches(start):
    """Of 64 ranks each, and every one ends."""
    for number in range(100):
        ended = start(["-q", "-n", "64", "--oversubscribe", "true"]).end(20)
        assert (number, ended.code, ended.out, ended.err) == (number, 0, b"", "")


def test_ranks_end_while_others_run(start, tmp_path):
    job = start(
        [
            "-n",
            "3",
            "--oversubscribe",
            "sh",
            "-c",
            'test $OMPI_COMM_WORLD_RANK = 1 || exit 0; exec "$@"',
            "sh",
            *program("wait", tmp_path / "go"),
        ]
    )
    job.expect(b"ready")

    def waiting() -> list[str]:
        return [line for line in job.left().values() if "programs/wait" in line and "-m mslaunch" not in line]

    wait_until(lambda: len(waiting()) == 1)
    (tmp_path / "go").touch()
    assert job.end().code == 0


def test_more_ranks_than_the_soft_limit_of_open_files():
    """The agent raises its limit; the ranks have the one that they would have had."""
    words = " ".join([sys.executable, "-m", "mslaunch", "-n", "40", "sh", "-c", "'ulimit -Sn'"])
    done = subprocess.run(
        ["sh", "-c", f"ulimit -Sn 90; exec {words}"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["90"] * 40), done.stderr


CRASHES = """\
import sys
from mslaunch.agent.termination import Termination
from mslaunch.cli.main import command

def end(*words):
    raise RuntimeError("this agent has a bug")

Termination.end = end
sys.exit(command(["-n", "2", "sh", "-c", "test $RANK = 0 && { sleep 0.2; exit 3; }; sleep 60"]))
"""


def test_an_agent_that_crashes_while_the_job_is_ended():
    """Its traceback is no cause, but is shown."""
    done = subprocess.run(
        [sys.executable, "-c", CRASHES], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert done.returncode == 3
    assert "internal error in the agent (please report this)" in done.stderr
    assert "RuntimeError: this agent has a bug" in done.stderr
    assert "rank 0 ended with exit code 3" in done.stderr
