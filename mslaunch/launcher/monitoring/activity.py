"""The activity of ranks: how much each has printed, when first and last, the longest silence, and the rate of all.

A listener of a launch (`observers.Observers.listen`).  All times are in seconds since the launch began.
"""

from __future__ import annotations

import time

from mslaunch.datamodel.node_plan import SERVICE_BASE
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BUCKETS = 600
_TAIL = 400  # bytes


class RankActivity:
    """What one rank or service has printed in its attempt."""

    __slots__ = ("first", "last", "silence", "size", "tail")

    def __init__(self) -> None:
        self.size = 0  #: bytes
        self.first: float | None = None
        self.last: float | None = None
        self.silence = 0.0  #: the longest, between two outputs, in seconds
        self.tail = b""

    @property
    def last_line(self) -> str:
        """The last line that is not empty; what is not text in it is not cleaned."""
        lines = self.tail.replace(b"\r", b"\n").split(b"\n")
        return next((line for line in reversed(lines) if line.strip()), b"").decode("utf-8", "replace")


class OutputRate:
    """Bytes in each interval, of at most 600; the interval doubles when there would be more."""

    def __init__(self) -> None:
        self.interval = 1.0  #: seconds
        self.sizes: list[int] = []

    def add(self, when: float, size: int) -> None:
        """`size` bytes came at `when`."""
        at = int(when / self.interval)
        while at >= _BUCKETS:
            self.sizes = [sum(self.sizes[pair : pair + 2]) for pair in range(0, len(self.sizes), 2)]
            self.interval *= 2
            at = int(when / self.interval)
        if at >= len(self.sizes):
            self.sizes.extend([0] * (at + 1 - len(self.sizes)))
        self.sizes[at] += size


class Activity:
    """What ranks and services of a launch have printed, by their numbers; each attempt begins anew with `ranks`."""

    def __init__(self, began: float, now: Callable[[], float] = time.monotonic) -> None:
        self.ranks: dict[int, RankActivity] = {}
        self.rate = OutputRate()
        self.size = 0  #: bytes of all attempts
        self.last = 0.0  #: when a rank has printed last, in any attempt
        self._began = began
        self._now = now

    @property
    def now(self) -> float:
        """Seconds since the launch began."""
        return self._now() - self._began

    def heard(self, kind: int, rank: int, data: bytes) -> None:
        """A process has printed `data`; b"" is the end of a stream."""
        if not data:
            return
        when, size = self._now() - self._began, len(data)
        one = self.ranks.get(rank)
        if one is None:
            one = self.ranks[rank] = RankActivity()
        if one.last is None:
            one.first = when
        elif when - one.last > one.silence:
            one.silence = when - one.last
        one.last = when
        if rank > SERVICE_BASE:
            self.last = when
        one.size += size
        one.tail = data[-_TAIL:] if size >= _TAIL else (one.tail + data)[-_TAIL:]
        self.size += size
        self.rate.add(when, size)

    def begin_attempt(self) -> None:
        """Ranks are started for the first time or again."""
        self.ranks = {}
