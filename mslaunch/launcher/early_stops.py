"""Stops: signals and --timeout while no ranks run: they are noted here, and found by whoever waits.

Before anything was started that is a refusal; between two attempts it is how the job ended.  While ranks run, signals
are the conductor's (`orders`).  The surprising thing: the limit of time fires here in any case, and where ranks run
nobody looks.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_TIMEOUT, LaunchError
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher.job.events import TimedOut
from mslaunch.launcher.job.failure_causes import overdue

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.request import Request
    from mslaunch.runtime.loop import Loop

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class EarlyStops:
    """What ends one launch from outside."""

    def __init__(self, loop: Loop, request: Request, signals: bool) -> None:
        self.error: LaunchError | None = None
        self._loop = loop
        self._request = request
        self._signals = signals
        self._begun = False  # ranks run, or have run
        self._watch(" before anything was started")
        if request.timeout:
            loop.after(request.timeout, self._on_timeout)

    def begun(self) -> None:
        """Ranks are about to run: what ends the launch from now on is no refusal."""
        self._begun = True

    def watch_again(self) -> None:
        """Ranks have run, and others will."""
        self._watch("")

    def _watch(self, when: str) -> None:
        if self._signals:
            for name in _SIGNALS:
                error = LaunchError(f"ended by {name}{when}")
                self._loop.signal(getattr(signal, name), lambda error=error: self._on_signal(error))  # type: ignore[misc]

    def _on_signal(self, error: LaunchError) -> None:
        self.error = self.error or error

    def _on_timeout(self) -> None:
        seconds, source = self._request.timeout or 0.0, self._request.timeout_from
        if self._begun:
            failure = overdue(TimedOut(seconds, source))
            self._on_signal(LaunchError(failure.what, code=failure.code))
        else:
            self._on_signal(LaunchError(f"nothing was started within {seconds:g} s", source, code=EXIT_TIMEOUT))

    def wait(self, until: Callable[[], bool]) -> None:
        """Run the loop until `until()`; raises `LaunchError` if something ends the launch first."""
        self._loop.run(lambda: self.error is not None or until())
        if self.error:
            raise self.error
