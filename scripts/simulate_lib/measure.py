"""What is measured of a process: seconds, CPU time and memory between two marks."""

from __future__ import annotations

import os
import resource
import time
from typing import NamedTuple

PAGE = os.sysconf("SC_PAGE_SIZE")


class Step(NamedTuple):
    """One step of a run with `nodes` hosts."""

    name: str
    nodes: int
    seconds: float
    cpu: float  # seconds of the launcher's process
    grown: int  # bytes: how much more memory it has after the step than before; never less than 0
    note: str = ""


class Stopwatch:
    """Steps of one run, one after the other."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.steps: list[Step] = []
        self._last = self._look()

    def mark(self, name: str, note: str = "") -> None:
        """A step has ended, which began at the mark before."""
        now = self._look()
        wall, cpu, memory = (after - before for after, before in zip(now, self._last))
        self.steps.append(Step(name, self._nodes, wall, cpu, max(0, int(memory)), note))
        self._last = self._look()

    def restart(self) -> None:
        """What has gone on since the last mark belongs to no step."""
        self._last = self._look()

    def _look(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), resident()


def resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE


def peak() -> int:
    """The most that it ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def kernel_memory() -> int:
    """Bytes that the kernel has taken for objects that it cannot give back, such as sockets; of the whole machine."""
    with open("/proc/meminfo", encoding="ascii") as file:
        words = dict(line.split(":") for line in file)
    return int(words["SUnreclaim"].split()[0]) * 1024


def allow_descriptors(count: int) -> int:
    """Raise the limit of this process to `count` descriptors, or as far as the system lets us; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return soft
    for wanted in (count, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
            break
        except (ValueError, OSError):
            continue
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
