"""Signals and the time limit (--timeout) of one launch: the one place that handles either.

All of them, and whoever calls `post`, make the same events.  The state of the launch decides who gets these:

    BEFORE   no rank has been started: `wait` raises, which refuses the launch
    RUNNING  ranks run: the function given to `attach`
    BETWEEN  an attempt has ended: `wait` raises, which ends the launch
"""

from __future__ import annotations

from mslaunch.errors import EXIT_TIMEOUT, LaunchError, UsageError
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher.job.events import Interrupted, Resumed, Signalled, Suspended, TimedOut, Warned

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.job.controller import JobController
    from mslaunch.runtime.loop import Loop

BEFORE, RUNNING, BETWEEN = "before", "running", "between attempts"

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
_FORWARDED = ("SIGUSR1", "SIGUSR2", "SIGALRM")
_ECHO = 3.0  # seconds in which a resource manager may send SIGTERM again: to the script, its processes and each step


def check_limits(request: Request) -> None:
    """Raises `UsageError` for a --warn that could not be sent, and for hangs that could not be found."""
    if any(request.hang):
        from mslaunch.launcher.monitoring.hang_watch import check_hangs

        check_hangs(request)
    if not request.warn:
        return
    seconds = request.warn[1]
    if not request.timeout:
        raise UsageError("it needs a time limit", "--warn", "add --timeout SECONDS")
    if seconds >= request.timeout:
        what = f"a warning {seconds:g} s before a time limit of {request.timeout:g} s would come before the start"
        raise UsageError(
            what,
            "--warn",
            f"write SIGNAL@SECONDS with fewer seconds (60 if none are given), or a longer {request.timeout_from}",
        )


class Interrupts:
    """What may end one launch; with `signals` those of this process too, which only the main thread may ask for."""

    def __init__(self, loop: Loop, request: Request, signals: bool, suspend: Callable[[], None]) -> None:
        """`suspend` stops this process, at Ctrl-Z while no rank runs."""
        self.state = BEFORE
        self.error: LaunchError | None = None  #: what `wait` raises
        self.granted = ""  #: the job of a resource manager; then SIGTERM comes from there, and more than once
        self._deaf_until = 0.0  # to SIGTERM
        self._loop = loop
        self._signals = signals
        self.suspend = suspend
        self._receive: Callable[[Any], None] = self._note
        self.job: JobController | None = None  #: whose ranks run, for whoever asks what they do
        self._handle({**{name: Interrupted(name) for name in _ENDING}, "SIGTSTP": Suspended()})
        if request.timeout:
            stacks = request.stack_traces or "timeout" in request.stacks_on
            limit = TimedOut(request.timeout, request.timeout_from, stacks, request.state_on_timeout)
            loop.after(request.timeout, lambda: self.post(limit))
            if request.warn:
                warning = Warned(*request.warn)
                loop.after(max(0.0, request.timeout - warning.seconds), lambda: self.post(warning))

    def _handle(self, events: dict[str, Any]) -> None:
        for name, event in events.items() if self._signals else ():
            self._loop.signal(getattr(signal, name), lambda event=event: self.post(event))  # type: ignore[misc]

    def post(self, event: Any) -> None:
        """Something wants the launch to end or to pause, or a signal is meant for the ranks."""
        if self.granted and isinstance(event, Interrupted) and event.signal == "SIGTERM":
            before, self._deaf_until = self._deaf_until, self._loop.now() + _ECHO
            if self._loop.now() < before:
                return
            event = event._replace(job=self.granted)
        self._receive(event)

    def attach(self, receive: Callable[[Any], None], job: JobController | None = None) -> None:
        """Ranks are about to run, those of `job`: `receive` gets the events."""
        self.state, self._receive, self.job = RUNNING, receive, job
        signals = {name: Signalled(int(getattr(signal, name))) for name in _FORWARDED}
        self._handle({**signals, "SIGCONT": Resumed()})

    def detach(self) -> None:
        """The ranks have ended; others may follow."""
        self.state, self._receive, self.job = BETWEEN, self._note, None

    def _note(self, event: Any) -> None:
        """While no rank runs: what ends the launch is found by `wait`, and there is nobody to forward a signal to."""
        if isinstance(event, Suspended):
            self.suspend()
        elif isinstance(event, (Interrupted, TimedOut)):
            self.error = self.error or self._error(event)

    def _error(self, event: Interrupted | TimedOut) -> LaunchError:
        if isinstance(event, Interrupted):
            from mslaunch.launcher.messages.failure_text import interrupted_text

            when = " before anything was started" if self.state == BEFORE else ""
            return LaunchError(interrupted_text(event.signal + when, event.job))
        if self.state == BEFORE:
            return LaunchError(f"nothing was started within {event.seconds:g} s", event.source, code=EXIT_TIMEOUT)
        from mslaunch.launcher.messages.failure_text import timeout_text

        return LaunchError(timeout_text(event.seconds, event.source), code=EXIT_TIMEOUT)

    def wait(self, until: Callable[[], bool], seconds: float | None = None) -> None:
        """As `Loop.run`; raises `LaunchError` if something ends the launch first."""
        self._loop.run(lambda: self.error is not None or until(), seconds)
        if self.error:
            raise self.error

    def wait_for_input(self, fd: int, seconds: float) -> bool:
        """Whether `fd` can be read within `seconds`; raises as `wait`.  No rank may run: the loop does."""
        ready: list[bool] = []
        self._loop.reader(fd, lambda: ready.append(True))
        try:
            self.wait(lambda: bool(ready), seconds)
        finally:
            self._loop.reader(fd, None)
        return bool(ready)
