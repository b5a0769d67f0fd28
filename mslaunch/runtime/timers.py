"""Timers of an event loop, and the clock that they go by."""

from __future__ import annotations

import heapq
import time

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.poller import Poller


class Clock:
    """The host's monotonic clock.  One for virtual time replaces both methods: a wait may only move the time on."""

    now = staticmethod(time.monotonic)

    def wait(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        """Descriptors that are ready, after at most `seconds`; None: as long as it takes."""
        return poller.wait(seconds)


class Timer:
    """A callback that is due at `when`; `callback` is None once it has fired or was cancelled."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None] | None) -> None:
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        """Drop it.  May be called after it has fired."""
        self.callback = None


class Timers:
    """Callbacks by the time at which they are due; of equal times, the one that was set first."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back once, `seconds` from now."""
        timer = Timer(self._now() + seconds, callback)
        self._count += 1
        heapq.heappush(self._heap, (timer.when, self._count, timer))
        return timer

    def run_due(self) -> float | None:
        """Run what is due; seconds until the next timer, None without one."""
        while self._heap:
            when, _, timer = self._heap[0]
            if timer.callback is None:
                heapq.heappop(self._heap)
                continue
            left = when - self._now()
            if left > 0:
                return left
            heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            callback()
        return None
