"""--fold and --show-ranks, with real ranks: equal lines once, the odd one soon, tracebacks, files, restarts, pty."""

from __future__ import annotations

import os
import subprocess
import sys

import launching
import pytest
from launching import BOUND, program, state_of, through_rsh, wait_until

TWO = through_rsh("alpha:4", "beta:4")
#: every rank waits until all of them are there, as ranks do at a barrier; then it does what follows
TOGETHER = """\
import os, sys, time
rank, size, here = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "here." + os.environ["MSLAUNCH_ATTEMPT"]
open(f"{here}.{rank}", "w").close()
deadline = time.monotonic() + 60
while len([name for name in os.listdir() if name.startswith(here)]) < size and time.monotonic() < deadline:
    os.sched_yield()
"""

#: the command with the time within which equal lines are one so long that no rank prints too late for it
PATIENT = """\
import sys
from mslaunch.__main__ import main
from mslaunch.launcher.stdio import fold_lines
fold_lines.WINDOW = fold_lines.LONGEST = 1000.0
main()
"""


@pytest.fixture
def patient(monkeypatch):
    """Lines that are equal are one however busy this machine is; times are tested in virtual time."""
    monkeypatch.setattr(launching, "COMMAND", [sys.executable, "-c", PATIENT])


def test_64_ranks_with_1000_equal_lines_are_1000_lines(patient, start, tmp_path):
    text = (
        "import os\nos.open('here.' + os.environ['RANK'], os.O_CREAT)\nopen('go')\n"
        "print(''.join(f'epoch 1 step {number}\\n' for number in range(1000)), end='')\n"
    )
    os.mkfifo(tmp_path / "go")
    job = start(["-n", "64", "--oversubscribe", "--fold", "python3", "-S", "-c", text])
    wait_until(lambda: len(list(tmp_path.glob("here.*"))) == 64)
    with open(tmp_path / "go", "w"):  # to which all of them have waited
        ended = job.end()
    assert ended.code == 0
    lines = ended.out.decode().splitlines()
    assert lines == [f"[0-63] epoch 1 step {number}" for number in range(1000)]


def test_an_odd_line_is_seen_while_the_others_run_on(start):
    """How soon is tested in virtual time (`unit/launcher/stdio/test_fold_lines.py`)."""
    text = TOGETHER + (
        "for step in range(20):\n"
        "    print('odd' if rank == 5 else 'same', flush=True)\n"
        "sys.stdin.readline() if rank == 0 else None\n"
    )
    job = start(
        ["-n", "8", "--oversubscribe", "--fold", "--pty", "no", "python3", "-S", "-c", text], stdin=subprocess.PIPE
    )
    job.expect(b"[5] odd\n", count=20)
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    ended = job.end()
    assert ended.code == 0 and ended.out.decode().count("[5] odd") == 20


@pytest.mark.parametrize("where", [[], TWO], ids=["local", "two hosts"])
def test_tracebacks_of_all_ranks_are_one(patient, run, where):
    text = TOGETHER + "def step():\n    raise ValueError('nan' if rank != 3 else 'inf')\nstep()\n"
    ended = run([*where, "-n", "8", "--oversubscribe", "--fold", "--enable-recovery", "python3", "-S", "-c", text])
    lines = [line for line in ended.err.splitlines() if line.startswith("[")]
    assert ended.code == 1
    heads = [line for line in lines if "Traceback" in line]
    assert heads == ["[0-7] Traceback (most recent call last):"]
    assert sorted(lines[-2:]) == ["[0-2,4-7] ValueError: nan", "[3] ValueError: inf"]


def test_files_are_complete_and_the_terminal_shows_the_chosen_ranks(patient, run, tmp_path):
    words = ["--output-filename", "logs", "--show-ranks", "0,2-3", "--fold"]
    ended = run(["-n", "4", "--oversubscribe", *words, "sh", "-c", "echo same; echo $RANK; printf end"])
    assert sorted(ended.lines) == ["[0,2-3] end", "[0,2-3] same", "[0] 0", "[2] 2", "[3] 3"]
    for rank in range(4):
        assert (tmp_path / "logs" / "1" / f"rank.{rank}" / "stdout").read_text() == f"same\n{rank}\nend"


def test_show_ranks_without_fold_changes_no_byte(run):
    ended = run(["-n", "4", "--oversubscribe", "--show-ranks", "2", "sh", "-c", "printf $RANK; printf $RANK >&2"])
    assert ended.out == b"2" and ended.err.splitlines()[-1].endswith("2")


def test_all_attempts_of_a_group_are_folded(patient, run):
    text = TOGETHER + "print('attempt', os.environ['MSLAUNCH_ATTEMPT'], flush=True)\n"
    text += "sys.exit(1 if rank == 1 and os.environ['MSLAUNCH_ATTEMPT'] == '1' else 0)\n"
    ended = run(["-n", "3", "--oversubscribe", "--fold", "--restart", "group", "python3", "-S", "-c", text])
    assert ended.code == 0
    assert [line for line in ended.lines if line.endswith("attempt 2")] == ["[0-2] attempt 2"]


def test_ranks_with_a_terminal_and_merged_streams(patient, run):
    text = "test -t 1 && echo terminal; printf 'half\\rwhole\\n'; echo err >&2"
    ended = run(["-n", "4", "--oversubscribe", "--fold", "--pty", "yes", "--merge-stderr-to-stdout", "sh", "-c", text])
    assert ended.out.decode().splitlines() == ["[0-3] terminal", "[0-3] whole", "[0-3] err"]


def test_all_is_shown_before_the_block_that_says_how_it_ended(run):
    ended = run(["-n", "2", "--oversubscribe", "--fold", "sh", "-c", "printf 'last words' >&2; exit 3"])
    assert ended.code == 3
    assert ended.err.index("last words") < ended.err.index("ended with exit code 3")


def test_msrun_and_torchrun_fold_too(patient, run, tmp_path):
    (tmp_path / "t.py").write_text(TOGETHER + "print('hello')\n")
    ended = run(["--worker_num=3", "--local_worker_num=3", "--join=True", "--fold", "--log_dir=logs", "t.py"])
    assert "[0-2] hello" in ended.lines
    assert all((tmp_path / "logs" / f"worker_{rank}.log").read_text() == "hello\n" for rank in range(3))
    for path in tmp_path.glob("here.*"):
        path.unlink()
    ended = run(["--nproc-per-node=3", "--fold", "t.py"])
    assert (ended.code, ended.lines) == (0, ["[0-2] hello"])
    ended = run(["--nproc-per-node=3", "--fold", "--tee=3", "t.py"])
    assert ended.code == 1 and "--tee" in ended.err and ended.out == b""


def test_a_slow_reader_gets_every_line(start):
    job = start(["-n", "2", "--oversubscribe", "--fold", *program("spew", 20_000)])
    wait_until(lambda: state_of(job.pid) == "S")  # the pipe is full, and the ranks are paused
    lines = job.end().out.decode().splitlines()
    for rank in range(2):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert own == [f"[{rank}] rank {rank} line {number} {'x' * 40}" for number in range(20_000)]
    assert len(lines) == 40_000


def test_head_ends_a_job_that_prints_for_ever(start):
    job = start(["-n", "2", "--oversubscribe", "--fold", "yes"])
    job.expect(b"[0-1] y\n")
    job.process.stdout.close()
    assert job.process.wait(BOUND) == 1
