"""The timers of a job: which of them run, and the restarts that wait for theirs.  The loop's clock is elsewhere."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.events import CancelTimer, Restart, SetTimer

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

# timers, and their seconds
PREPARE, PREPARE_SECONDS = "prepare", 10.0  #: for addresses and ports, on all hosts together
SERVE, SERVE_SECONDS = "serve", 30.0  #: for services that start before the ranks
TRACES, TRACE_SECONDS = "traces", 10.0  #: for --get-stack-traces, on all hosts at once
TRACES_ARRIVE = 5.0  #: seconds more until the stacks must have come
KILL, KILL_NOW, NOT_ENDING = "kill", "kill now", 10.0  #: after SIGKILL, when a host counts as impossible to end
DRAIN_INTERRUPTED, DRAIN_TIMED_OUT = "drain interrupted", "drain timed out"
STUCK = 3.0  #: for a terminal that nobody reads, once a signal or --timeout has ended the job


class JobTimers:
    """The timers of one job; methods return the actions that set or cancel them."""

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._restarts: dict[str, Restart] = {}

    def set(self, timer: str, seconds: float) -> list[Any]:
        """A timer that runs already is left alone."""
        if timer in self._running:
            return []
        self._running.add(timer)
        return [SetTimer(timer, seconds)]

    def cancel(self, timer: str) -> list[Any]:
        """A timer that does not run is left alone."""
        if timer not in self._running:
            return []
        self._running.discard(timer)
        return [CancelTimer(timer)]

    def fired(self, timer: str) -> list[Any]:
        """The time of a timer is over; the restart that waited for it."""
        self._running.discard(timer)
        return [self._restarts.pop(timer)] if timer in self._restarts else []

    def delay(self, order: Restart, seconds: float) -> list[Any]:
        """Order a restart later."""
        timer = f"restart {order.rank}"
        self._restarts[timer] = order
        return self.set(timer, seconds)

    def flush(self, nodes: Collection[int]) -> list[Any]:
        """The job ends: restarts on `nodes` are ordered now, for it is the agent that refuses them then."""
        actions: list[Any] = []
        for timer, order in self._restarts.items():
            actions += self.cancel(timer)
            if order.node in nodes:
                actions.append(order)
        self._restarts.clear()
        return actions
