"""How launches in jobs of a real Grid Engine end: deleted, failed, without a launcher; nothing is left on any host."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from batch_systems import BatchSystem, marks, wait_until
from grid_jobs import LAUNCH, NEEDED, GridJob

pytestmark = marks(*NEEDED)
#: says that it runs, with a child in a session of its own, and writes down the signals that it gets
STAYS = """
import os, signal, sys, time
rank = os.environ["RANK"]
def note(number, _):
    with open(f"signals.{rank}", "a") as file:
        file.write(f"{number}\\n")
    if number == signal.SIGTERM:
        os._exit(0)
for one in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(one, note)
if not os.fork():
    os.setsid()
    signal.pause()
open(f"up.{rank}", "w").close()
while True:
    time.sleep(600)
"""


def running(grid: BatchSystem, *words: str, options: str = "") -> GridJob:
    """A job whose launcher is its script, and whose seven ranks run."""
    program = grid.file("stays.py", STAYS)
    started = GridJob(grid, f"exec {LAUNCH} {options} {sys.executable} -S {program}", *words)
    wait_until(lambda: len(list(grid.work.glob("up.?"))) == 7, lambda: started.said or "no word")
    return started


def wait_for_end(grid: BatchSystem, job: GridJob) -> None:
    wait_until(job.gone, lambda: grid.alive(f"MARK_OF_TEST={grid.work}"))


def signals(grid: BatchSystem) -> list[str]:
    """Those of all ranks."""
    return [path.read_text().replace("\n", " ") for path in sorted(grid.work.glob("signals.?"))]


def test_qdel_leaves_nothing(grid: BatchSystem) -> None:
    """Launcher and guards are killed; agents, which have sessions of their own, end their ranks."""
    job = running(grid, options="--grace 2")
    job.delete()
    wait_for_end(grid, job)
    assert signals(grid) == ["15 "] * 7


def test_qdel_with_notice_is_told_to_ranks_and_leaves_nothing(grid: BatchSystem) -> None:
    """The notice is SIGUSR2, two seconds ahead in the queue of these hosts."""
    job = running(grid, "-notify")
    job.delete()
    wait_for_end(grid, job)
    assert signals(grid) == ["12 15 "] * 7, job.said


def test_a_launcher_that_is_killed_leaves_nothing(grid: BatchSystem) -> None:
    job = running(grid, options="--grace 1")
    [launcher] = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_launcher(path, grid)]
    os.kill(launcher, 9)
    wait_for_end(grid, job)
    assert signals(grid) == ["15 "] * 7


def _is_launcher(process: Path, grid: BatchSystem) -> bool:
    try:
        parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
        above = (Path("/proc") / parent / "cmdline").read_bytes()
        return b"job_scripts" in above and str(grid.work).encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_a_rank_that_fails_ends_the_others(grid: BatchSystem) -> None:
    job = GridJob(grid, f"{LAUNCH} --grace 1 sh -c '[ $RANK = 5 ] && exit 42; sleep 600'")
    ended = job.ended()
    assert ended.code == 42
    assert "rank 5 ended with exit code 42 on n03" in ended.err
    wait_for_end(grid, job)
