"""Clocks for the event loop that run as fast as the loop does."""

from __future__ import annotations

from mslaunch.runtime.loop import Clock, Poller


class FastClock(Clock):
    """Time passes only where the loop would wait for it; `stopped` seconds are added once, as by SIGSTOP."""

    def __init__(self, time: float = 1000.0) -> None:
        self.time = time
        self.stopped = 0.0
        self.now = lambda: self.time  # type: ignore[method-assign,assignment]

    def wait(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        self.time += (seconds or 0.0) + self.stopped
        self.stopped = 0.0
        return []


class VirtualClock(FastClock):
    """Descriptors are real, and time passes only while none of them is ready: how fast the machine is does not matter.

    For a test that has both ends of them: what is not there yet will not come by itself.
    """

    def wait(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        ready = poller.wait(0.0)
        if not ready:
            assert seconds is not None, "nothing will ever happen"
            self.time += seconds
        return ready


class StillClock(FastClock):
    """Descriptors are real and waited for, also those of other processes; time passes when the test says so."""

    def wait(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        return poller.wait(None if seconds is None or seconds > 0 else 0.0)
