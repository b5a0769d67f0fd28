"""Where the time of a launch on this host goes: from the command to the first rank, and to the end.

The audit hook that finds the phases costs some per cent itself, so that only their shares are to be compared.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Sequence

from bench_lib import BenchError
from bench_lib.timing import clean_environ

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "phase_marks.py")
#: each phase, and the mark at which it ends
PHASES = (
    ("the interpreter starts", "begun"),
    ("the command is imported, and its words are read", "os.fork"),
    ("the agent is forked; it imports its modules while the launcher does", "launcher"),
    ("the launcher is imported", "placing"),
    ("ranks are placed; files, agent and ports are ready; plans are made and sent", "first"),
    ("ranks are spawned", "last"),
    ("ranks end and are reaped; agent and guard end; the command exits", "exited"),
)


def phases(python: str, rounds: int, ranks: int) -> list[Sequence[str]]:
    """A row for each phase of `-n RANKS true`: median milliseconds, and the share of all.

    The first round is left out.
    """
    found: dict[str, list[float]] = {name: [] for name, _ in PHASES}
    for turn in range(rounds + 1):
        moments = _moments(python, ranks)
        for (name, mark), before in zip(PHASES, ["", *(mark for _, mark in PHASES)]):
            if turn:
                found[name].append(moments[mark] - moments[before])
    medians = {name: statistics.median(times) for name, times in found.items()}
    whole = sum(medians.values())
    rows: list[Sequence[str]] = [
        (name, f"{spent * 1000:.1f} ms", f"{spent / whole:.0%}") for name, spent in medians.items()
    ]
    return [*rows, ("all", f"{whole * 1000:.1f} ms", "")]


def _moments(python: str, ranks: int) -> dict[str, float]:
    """Of one run: seconds of the monotonic clock by mark; "": its start."""
    with open("marks", "w", encoding="ascii"):
        pass
    begin = time.monotonic()
    command = [python, PROGRAM, os.path.abspath("marks"), "-n", str(ranks), "--oversubscribe", "true"]
    done = subprocess.run(command, env=clean_environ(), capture_output=True, timeout=20, check=False)
    exited = time.monotonic()
    with open("marks", encoding="ascii") as file:
        lines = [line.split() for line in file]
    seen: dict[str, float] = {"": begin, "exited": exited}
    for name, _, moment in lines:
        seen.setdefault(name, float(moment))
    spawned = [float(moment) for name, _, moment in lines if name == "os.posix_spawn"]
    seen.update({"first": min(spawned, default=0.0), "last": max(spawned, default=0.0)})
    missing = [mark for _, mark in PHASES if mark not in seen]
    if done.returncode or missing or len(spawned) != ranks:
        raise BenchError(f"the phases cannot be told: {missing or len(spawned)}; {done.stderr.decode()[-300:]}")
    return seen
