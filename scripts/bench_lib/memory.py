"""The memory of a launcher's processes on this host while all ranks sleep, and what one more rank or host adds to it.

PSS, which divides a page among the processes that share it, is what counts.  Ranks are not counted, nor are the agents
on SSH hosts, whose processes are not below the launcher.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench_lib import BenchError, timing
from bench_lib.cases import MPI_LIKE
from bench_lib.contenders import OURS, ROOT, Launcher, local
from bench_lib.hosts import say, slots_file, up
from bench_lib.table import Row

HEAD = ("memory", "launcher", "processes", "PSS, sum", "peak RSS, sum", "target", "")
LOCAL = (4, 64, 512)  #: ranks on this host; the last two show what a rank adds
HOSTS, QUICK_HOSTS = (8, 32), (8, 16)  #: SSH hosts; they show what a host adds
MOST = {64: 16 << 10}  #: KiB, of ours
RANK_MOST, HOST_MOST = 24, 150  #: KiB that a rank or a host may add
_BOUND = 60.0  # seconds until all ranks sleep
_SLEEP = ("sh", "-c", "echo up; exec sleep 300")  # what it prints tells that a rank on another host has begun


class Memory(NamedTuple):
    """Of a launcher's processes, in KiB.  `shared` splits common pages (PSS)."""

    processes: int
    shared: float
    peak: float


def memory(launchers: Mapping[str, Launcher], quick: bool) -> list[Row]:
    """The SSH hosts need root; without it the rows say that nothing was measured."""
    found = []
    for name in [name for name in MPI_LIKE if name in launchers]:
        used = {n: resident(local(launchers[name], n, _SLEEP), n) for n in (LOCAL if name == OURS else LOCAL[:2])}
        found += [_row(f"{n} × sleep", name, used[n], MOST.get(n, 0)) for n in used]
        if name == OURS:
            found.append(_increment("each further rank on this host", used, RANK_MOST, LOCAL[1:]))
    if os.geteuid():
        return [*found, Row(("each SSH host", OURS, "", "NOT MEASURED: needs root", "", f"≤ {HOST_MOST} KiB", ""))]
    counts = QUICK_HOSTS if quick else HOSTS
    on_hosts = {count: _on_hosts(launchers[OURS], count) for count in counts}
    found += [_row(f"{count} SSH hosts × sleep", OURS, used, 0) for count, used in on_hosts.items()]
    return [*found, _increment("each further SSH host", on_hosts, HOST_MOST, counts)]


def _row(what: str, name: str, used: Memory | None, most: float) -> Row:
    if used is None:
        return Row((what, name, "hung", "", "", "", ""), name == OURS)
    cells = (what, name, f"{used.processes}", f"{used.shared / 1024:.1f} MiB", f"{used.peak / 1024:.1f} MiB")
    return _judged(cells, used.shared, most if name == OURS else 0, f"{most / 1024:g} MiB")


def _increment(what: str, used: Mapping[int, Memory | None], most: float, counts: Sequence[int]) -> Row:
    few, many = (used[count] for count in counts)
    if few is None or many is None:
        return Row((what, OURS, "", "hung", "", f"≤ {most:g} KiB", ""), True)
    added, peak = ((b - a) / (counts[1] - counts[0]) for a, b in zip(few[1:], many[1:]))
    return _judged((what, OURS, "", f"{added:.1f} KiB", f"{peak:.1f} KiB"), added, most, f"{most:g} KiB")


def _judged(cells: tuple[str, ...], value: float, most: float, text: str) -> Row:
    if not most:
        return Row((*cells, "", ""))
    reached = value <= most
    return Row((*cells, f"≤ {text}", "reached" if reached else "NOT REACHED"), not reached)


def resident(argv: Sequence[str], n: int) -> Memory | None:
    """Start it, wait until all `n` ranks have begun to sleep, look, and end it; None if they never did."""
    with timing.adopting():
        reader, writer = os.pipe()
        pid = timing.start(argv, timing.clean_environ(), writer)
        os.close(writer)
        used = None
        if _lines(reader, n):
            time.sleep(0.5)  # the launcher may still be at work for the last one
            used = _measure([pid, *(member for member in timing.family(pid) if _comm(member) not in ("sh", "sleep"))])
        os.kill(pid, signal.SIGTERM)
        if not timing.ends(pid, 10):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
    return used


def _lines(reader: int, n: int) -> bool:
    """Whether so many lines come in time."""
    deadline, seen = time.monotonic() + _BOUND, 0
    while seen < n and select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(reader, 1 << 16)
        if not data:
            return False
        seen += data.count(b"\n")
    return seen >= n


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


def _measure(pids: Sequence[int]) -> Memory:
    shared, peak = (
        sum(timing.kib(pid, file, key) for pid in pids)
        for file, key in (("smaps_rollup", "Pss:"), ("status", "VmHWM:"))
    )
    return Memory(len(pids), shared, peak)


def _on_hosts(launcher: Launcher, count: int) -> Memory | None:
    """In the head of a cluster, a rank on each of so many SSH hosts."""
    with tempfile.TemporaryDirectory(prefix="mslaunch-bench-") as place, up("cluster", place, count) as directory:
        slots = slots_file(directory, place, " slots=1")
        argv = [launcher.path, "--hostfile", slots, "-n", str(count), *_SLEEP]
        inner = [sys.executable, os.path.join(ROOT, "scripts", "bench"), "_memory", json.dumps([argv, count])]
        found = json.loads(say("cluster", directory, "exec", "head", *inner))
    return Memory(*found) if found else None


def inside(asked: str) -> None:
    """In the head: measure, and print what was found."""
    argv, count = json.loads(asked)
    try:
        print(json.dumps(resident(argv, count)))
    except OSError as error:
        raise BenchError(f"{argv[0]} cannot be measured: {error}") from None
