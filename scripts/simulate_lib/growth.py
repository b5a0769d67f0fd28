"""The growth of each step between two numbers of hosts, held against N log N.

Judged is the CPU time of the launcher's process, which other work on the machine changes little; wall time also has
that of the process that plays, and of the machine's other work.  A step may grow by TOLERANCE more than N log N: what
fits into the caches of a processor at 1,000 hosts does not at 100,000, which was measured to make the same work up to
1.6 times as slow (planning, which does the same for each host whatever their number), and CPU times of the same run
differ by up to a quarter here.  A step that grows with the square of N does so by 10, from a power of ten to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from simulate_lib.measure import Step

TOLERANCE = 2.0
LEAST_CPU = 0.02  #: seconds: less is mostly what a step costs whatever the number of hosts, and the clock's grain
LEAST_BYTES = 8 << 20  #: the same for memory; malloc takes it in large pieces


class Growth(NamedTuple):
    """Of one step from `before` to `after` hosts."""

    name: str
    what: str  # "CPU time" or "memory"
    before: int
    after: int
    factor: float
    allowed: float

    @property
    def too_fast(self) -> bool:
        return self.factor > self.allowed

    def __str__(self) -> str:
        text = f"{self.name}: from {self.before:,} to {self.after:,} hosts {self.what} grows {self.factor:.1f} times"
        return f"{text}; N log N times {TOLERANCE:g} is {self.allowed:.1f}"


def growths(steps: Iterable[Step]) -> list[Growth]:
    """Of each step between neighbouring numbers of hosts, what took enough to be judged."""
    by_name: dict[str, list[Step]] = {}
    for step in steps:
        by_name.setdefault(step.name, []).append(step)
    return [growth for found in by_name.values() for growth in _of_one(sorted(found, key=lambda step: step.nodes))]


def _of_one(steps: Sequence[Step]) -> list[Growth]:
    found = []
    for before, after in zip(steps, steps[1:]):
        if before.nodes == after.nodes:
            continue
        allowed = TOLERANCE * _n_log_n(after.nodes) / _n_log_n(before.nodes)
        pairs = (("CPU time", before.cpu, after.cpu, LEAST_CPU), ("memory", before.grown, after.grown, LEAST_BYTES))
        for what, small, large, least in pairs:
            factor = max(large, least) / max(small, least)
            found.append(Growth(after.name, what, before.nodes, after.nodes, factor, allowed))
    return found


def _n_log_n(nodes: int) -> float:
    return nodes * math.log(max(2, nodes))


def too_fast(steps: Iterable[Step]) -> list[Growth]:
    """What grows faster than it may."""
    return [growth for growth in growths(steps) if growth.too_fast]
