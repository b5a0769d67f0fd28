"""Benchmark cases on this host: short jobs, sleeping jobs (for memory), and jobs that write a lot.

The writers are two ranks of 200 MB each, because a launcher that is fast for a megabyte may still hold everything in
memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench_lib import table, timing
from bench_lib.contenders import BASE, HYDRA, MPIRUN, MSRUN, OURS, TORCHRUN, Launcher, local
from bench_lib.table import Row
from bench_lib.timing import Spec

MPI_LIKE = (OURS, BASE, MPIRUN, HYDRA)
FRAMEWORKS = (OURS, BASE, TORCHRUN, MSRUN)
TARGETS = {4: 0.75, 64: 0.6}
TORCHRUN_TARGET = 0.5
OUTPUT_TARGET = 0.3
WRITER = """\
import os, sys
block = (b"x" * 99 + b"\\n") * 655
left = int(sys.argv[1])
while left > 0:
    left -= os.write(1, block[:left])
"""


def commands(
    launchers: Mapping[str, Launcher], names: Sequence[str], n: int, program: Sequence[str]
) -> dict[str, list[str]]:
    return {name: local(launchers[name], n, program) for name in names if name in launchers}


def launch(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    found = []
    for n in (1, 4, 64):
        spec = Spec(commands(launchers, MPI_LIKE, n, ["true"]), rounds, 5.0)
        results = timing.paired(spec, f"{n} × true")
        found += table.rows(f"launch {n} × true", OURS, results, {MPIRUN: TARGETS.get(n, 0.0)})
    if {BASE, TORCHRUN, MSRUN} & set(launchers):
        found += _frameworks(launchers, max(2, rounds // 5))
    return found


def _frameworks(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    with open("empty.py", "w", encoding="ascii"):
        pass
    asked = {name: local(launchers[name], 4, ["empty.py"]) for name in FRAMEWORKS if name in launchers}
    for name in {OURS, BASE} & set(asked):
        asked[name] = local(launchers[name], 4, [sys.executable, "empty.py"])
    results = timing.paired(Spec(asked, rounds, 60.0), "4 × an empty Python program")
    return table.rows("launch 4 × an empty Python program", OURS, results, {TORCHRUN: TORCHRUN_TARGET})


def output(launchers: Mapping[str, Launcher], rounds: int, total: int) -> list[Row]:
    """`total` bytes from two ranks, by Python and by C, to /dev/null and through a pipe."""
    programs = {
        "Python": [sys.executable, "-c", WRITER, str(total // 2)],
        "head -c": ["head", "-c", str(total // 2), "/dev/zero"],
    }
    found = []
    for writer, program in programs.items():
        for sink in ("null", "pipe"):
            what = f"{total // 1000000} MB of {writer} to {'/dev/null' if sink == 'null' else 'a pipe'}"
            asked = commands(launchers, MPI_LIKE, 2, program)
            spec = Spec(asked, rounds, 60.0, sink, total if sink == "pipe" else -1, tuple(program))
            found += table.rows(what, OURS, timing.paired(spec, what), {MPIRUN: OUTPUT_TARGET})
    return found


class Memory(NamedTuple):
    """Of a launcher's processes, ranks not counted; bytes are MiB.  `shared` splits common pages (PSS)."""

    processes: int
    shared: float
    peak: float


def memory(launchers: Mapping[str, Launcher]) -> list[Sequence[str]]:
    """Of a launcher whose ranks all sleep."""
    found: list[Sequence[str]] = []
    for n in (4, 64):
        for name, argv in commands(launchers, MPI_LIKE, n, ["sleep", "60"]).items():
            used = resident(argv, n)
            cells = (
                (f"{used.processes}", f"{used.shared:.1f} MiB", f"{used.peak:.1f} MiB") if used else ("hung", "", "")
            )
            found.append((f"{n} × sleep", name, *cells))
    return found


def resident(argv: Sequence[str], n: int) -> Memory | None:
    """Start it, wait (10 s at most) until all `n` ranks sleep, look, and end it; None if they never did."""
    with timing.adopting():
        pid = timing.start(argv, timing.clean_environ())
        deadline, used = time.monotonic() + 10, None
        while used is None and time.monotonic() < deadline:
            family = timing.family(os.getpid())
            if sum(_comm(member) == "sleep" for member in family) == n:
                time.sleep(0.3)  # the launcher may still be at work for the last one
                used = _measure([member for member in family if _comm(member) != "sleep"])
            time.sleep(0.02)
        os.kill(pid, signal.SIGTERM)
        if not timing.ends(pid, 5):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return used


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


def _measure(pids: Sequence[int]) -> Memory:
    shared, peak = (
        sum(timing.kib(pid, file, key) for pid in pids) / 1024
        for file, key in (("smaps_rollup", "Pss:"), ("status", "VmHWM:"))
    )
    return Memory(len(pids), shared, peak)
