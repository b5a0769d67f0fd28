"""Jobs that hang: found when no rank prints anything, with what the ranks do, and ended, restarted or only reported."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time

import pytest
from launching import program, through_rsh

FOUR = through_rsh("h1:2", "h2:2", "h3:2", "h4:2")
#: ranks meet in a barrier of files in the directory `argv[1]`; of all ranks the one of `argv[2]` sleeps instead
_BARRIER = """
import os, sys, time

def barrier(folder, rank, size):
    open(f"{folder}/{rank}", "w").close()
    pipe = os.open(f"{folder}/pipe", os.O_RDONLY)

def step(folder, odd):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == odd:
        time.sleep(1000)
    barrier(folder, rank, size)

print("begun", flush=True)
step(sys.argv[1], int(sys.argv[2]))
"""
_SECONDS = re.compile(r"no rank has printed anything for (\S+) seconds?")


@pytest.fixture
def barrier(tmp_path):
    """The command line of a rank: all but one wait in a function called barrier."""
    folder = tmp_path / "barrier"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (tmp_path / "train.py").write_text(_BARRIER)
    return lambda odd: [sys.executable, "-S", str(tmp_path / "train.py"), str(folder), str(odd)]


def without_tools(tmp_path):
    """An environment in which no tool finds anything out."""
    folder = tmp_path / "none"
    folder.mkdir()
    for name in ("py-spy", "eu-stack", "gstack", "gdb"):
        (folder / name).write_text("#!/bin/sh\necho not allowed >&2; exit 1\n")
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ.get('PATH', os.defpath)}"
    return {"PATH": path, "RSH_PATH": path}


def test_the_rank_that_sleeps_is_named_first(run, barrier):
    """Of 8 ranks on 4 hosts, by the real py-spy."""
    if not shutil.which("py-spy"):
        pytest.skip("NOT TESTED, not installed: py-spy")
    path = os.environ.get("PATH", os.defpath)
    ended = run([*FOUR, "-n", "8", "--hang-timeout", "3", *barrier(5)], env={"RSH_PATH": path}, bound=60)
    assert ended.code == 110
    said = "rank 5 in time.sleep (train.py:11); 7 ranks in "
    assert f"mslaunch: no rank has printed anything for 3 seconds: {said}" in ended.err
    assert "(train.py:6)" in ended.err.split(said)[1].partition("\n")[0]
    assert f"mslaunch: no rank has printed anything for 3 seconds (--hang-timeout)\n  {said}" in ended.err
    blocks = re.findall(r"^  (ranks? .*) on (h\d), process \d+ \(.*\), from py-spy:", ended.err, re.M)
    assert blocks == [("rank 5", "h3"), ("ranks 0-4, 6-7, of which rank 0", "h1")], ended.err


def test_without_a_tool_the_kernel_says_who_does_something_else(run, barrier, tmp_path):
    ended = run([*FOUR, "-n", "8", "--hang-timeout", "2", *barrier(5)], env=without_tools(tmp_path), bound=60)
    assert ended.code == 110
    assert re.search(
        r"for 2 seconds: rank 5 in the system call clock_nanosleep; 7 ranks in the system call openat$", ended.err, re.M
    ), ended.err


def test_a_program_in_c(run, tmp_path):
    """gdb names the function; without it the kernel names the system call."""
    if not (shutil.which("gcc") and shutil.which("gdb")):
        pytest.skip("NOT TESTED, not installed: gcc and gdb")
    (tmp_path / "t.c").write_text(
        "#include <stdlib.h>\n#include <unistd.h>\nstatic int wait_for_others(void) { return pause(); }\n"
        'int main(void) {\n    if (atoi(getenv("RANK")) == 2)\n        sleep(1000);\n    return wait_for_others();\n}\n'
    )
    assert not os.system(f"gcc -g -O0 -o {tmp_path}/t {tmp_path}/t.c")
    ended = run(["-n", "4", "--oversubscribe", "--hang-timeout", "2", f"{tmp_path}/t"])
    assert ended.code == 110
    assert "rank 2 in sleep (t.c:6); 3 ranks in pause (t.c:3)" in ended.err
    ended = run(["-n", "4", "--oversubscribe", "--hang-timeout", "2", f"{tmp_path}/t"], env=without_tools(tmp_path))
    assert "rank 2 in the system call clock_nanosleep; 3 ranks in the system call pause" in ended.err


def test_a_job_that_prints_is_never_ended(run):
    """Though each rank is silent for longer, and all together for a part of the time."""
    script = "for i in 1 2 3 4 5 6; do echo $i; sleep 1; done"
    ended = run(["-n", "1", "--hang-timeout", "4", "sh", "-c", script])
    assert (ended.code, ended.err) == (0, "")
    script = "sleep $RANK; echo first; sleep 6; echo second"
    ended = run(["-n", "6", "--oversubscribe", "--hang-timeout", "5", "sh", "-c", script])
    assert ended.code == 0 and "no rank" not in ended.err


def test_a_file_that_changes_is_progress(run, tmp_path):
    """And one that does not is none."""
    words = ["-n", "1", "--hang-timeout", "3.5", "--progress-file", "file"]
    ended = run([*words, "sh", "-c", "for i in 1 2 3 4 5; do echo $i >> file; sleep 1; done"])
    assert (ended.code, ended.err) == (0, "")
    ended = run([*words, "sleep", "1000"])
    assert ended.code == 110
    assert "for 3.5 seconds, and file has not changed (--hang-timeout)" in ended.err
    ended = run(["-n", "1", "--hang-timeout", "1", "--progress-file", "flie", "sleep", "1000"])
    assert ended.code == 110 and "for 1 second, and there is no flie (--progress-file)" in ended.err


def test_a_report_ends_nothing(start):
    """It is repeated, and stops when the job prints again.

    Stacks may be looked for longer than a second: no report is then of two seconds.
    """
    job = start(
        ["-n", "2", "--hang-timeout", "1", "--on-hang", "report", "sh", "-c", "read x; echo $x"],
        stdin=-1,
    )
    job.expect_error(b"for 1 second: ")
    job.expect_error(b"no rank has printed anything for ", 3)
    job.process.stdin.write(b"go\n")
    ended = job.end()
    assert ended.code == 0
    assert b"go\n" in ended.out
    assert len(_SECONDS.findall(ended.err)) <= 5


def test_all_ranks_are_started_again(run, tmp_path):
    script = "if [ $MSLAUNCH_ATTEMPT = 1 ]; then sleep 1000; fi; echo well"
    words = ["-n", "2", "--hang-timeout", "1", "--on-hang", "restart", "--restart", "group"]
    ended = run([*words, "sh", "-c", script])
    assert (ended.code, ended.out) == (0, b"well\nwell\n"), ended.err
    assert (
        "attempt 1 of 4: no rank has printed anything for 1 second (--hang-timeout); all ranks are started" in ended.err
    )
    ended = run([*words, "--max-restarts", "1", "sleep", "1000"])
    assert ended.code == 110
    assert "not started again: this was attempt 2 of 2" in ended.err


def test_the_odd_rank_is_started_again(run, tmp_path):
    """With --restart rank: the others, which wait for it, go on."""
    os.mkfifo(tmp_path / "pipe")
    script = f"""if [ $RANK = 1 ] && [ ! -e {tmp_path}/again ]; then touch {tmp_path}/again; exec sleep 1000; fi
[ $RANK = 1 ] && {{ touch {tmp_path}/here; exec 3<>{tmp_path}/pipe; echo >&3; echo >&3; }}
while [ ! -e {tmp_path}/here ]; do read x < {tmp_path}/pipe; done; echo well"""
    words = ["-n", "3", "--oversubscribe", "--hang-timeout", "1.5", "--on-hang", "restart", "--restart", "rank"]
    ended = run([*words, "sh", "-c", script])
    assert ended.code == 0, ended.err
    assert ended.out == b"well\n" * 3
    assert "rank 1 killed, to be started again" in ended.err
    assert "started again, 1 of 3" in ended.err


@pytest.mark.parametrize("where", [[], through_rsh("h1:2", "h2:2")], ids=["local", "two hosts"])
def test_a_failure_shows_what_the_others_do(run, where, tmp_path):
    """Before they are ended."""
    os.mkfifo(tmp_path / "pids")
    script = """exec 9<>pids
if [ $RANK = 3 ]; then
    for i in 1 2 3; do read pid <&9; until grep -q '(sleep) S' /proc/$pid/stat; do :; done; done
    exit 7
fi
echo $$ >&9; exec sleep 1000"""
    words = [*where, "-n", "4", "--oversubscribe", "--stacks-on", "failure"]
    ended = run([*words, "sh", "-c", script], env=without_tools(tmp_path))
    assert ended.code == 7
    assert re.search(
        r"^mslaunch: stacks of the other ranks, before they are ended: all 3 ranks in the system call", ended.err, re.M
    )
    assert re.search(r"^  ranks 0-2, of which rank 0 on ", ended.err, re.M)
    assert "rank 3 ended with exit code 7" in ended.err
    assert "ended by mslaunch: ranks 0-2" in ended.err


def test_a_tool_that_hangs_does_not_keep_a_failure(run, tmp_path):
    """How long it is waited for is tested in virtual time (`unit/launcher/job/test_stack_rounds.py`)."""
    for name in ("py-spy", "eu-stack"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 1000\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ.get('PATH', os.defpath)}"
    script = "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 1000"
    ended = run(["--stacks-on", "failure", "-n", "2", "sh", "-c", script], env={"PATH": path})
    assert ended.code == 7
    assert "rank 0 in the system call clock_nanosleep" in ended.err, ended.err


def test_a_suspended_job_does_not_hang(start, run):
    """While another one does; and its time begins anew, so that it is not ended as soon as it goes on."""
    job = start(["-n", "1", "--hang-timeout", "2", *program("wait")])
    job.expect(b"ready")
    job.send(signal.SIGTSTP)
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert run(["-n", "1", "--hang-timeout", "2", "sleep", "1000"]).code == 110
    began = time.monotonic()
    job.send(signal.SIGCONT)
    ended = job.end()
    assert ended.code == 110
    assert time.monotonic() - began > 1.5, ended.err


def test_stacks_can_be_left_out(run):
    ended = run(["-n", "2", "--hang-timeout", "1", "--stacks-on", "none", "sleep", "1000"])
    assert ended.code == 110
    assert ended.err.splitlines()[0] == "mslaunch: no rank has printed anything for 1 second (--hang-timeout)"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on-hang", "end"], "--on-hang: it needs a time after which a job counts as hung"),
        (["--hang-timeout", "5", "--on-hang", "restart"], "--on-hang restart: it needs --restart group or rank"),
        (["--hang-timeout", "0"], "a number of seconds, more than 0"),
        (["--hang-timeout", "5", "--on-hang", "kill"], "end, restart or report"),
        (["--stacks-on", "none,hang"], "or none alone"),
        (["--stacks-on", "death"], "a list of"),
        (["--backend", "openmpi", "--hang-timeout", "5"], "not with --backend openmpi"),
        (["--backend", "openmpi", "--stacks-on", "failure"], "not with --backend openmpi"),
    ],
)
def test_what_cannot_be_is_refused(run, words, said):
    ended = run([*words, "-n", "1", "touch", "file"])
    assert (ended.code, ended.out) == (1, b"")
    assert said in ended.err and "Traceback" not in ended.err


def test_a_part_of_a_job_cannot_be_watched(run):
    """One of several commands would take the silence of its own ranks for a hang."""
    words = ["--dialect", "torchrun", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", "0"]
    words += ["--master-addr", "127.0.0.1", "--master-port", "1", "--hang-timeout", "5", "--no-python", "true"]
    ended = run(words)
    assert ended.code == 1
    assert "--hang-timeout: each of several commands that start one job sees only what its own ranks print" in ended.err
