"""Orders: what is wanted of ranks from outside while they run: by signals to the launcher, a limit of time, and stacks.

It makes events and frames of them, and does not know why ranks end.  The surprising thing: Ctrl-Z stops
the ranks with SIGSTOP, for they are in sessions without a terminal, where the kernel ignores SIGTSTP.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher.job import events
from mslaunch.launcher.job.job_state import ENDING, RUNNING
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.launcher.messages.console import Console
    from mslaunch.runtime.loop import Loop, Timer

    class InterruptHost(Protocol):
        """Who conducts them."""

        state: JobState

        def event(self, event: Any) -> None:
            """Something has happened."""

        def send(self, node: int, frame: bytes) -> None:
            """One frame to the agent of a node."""

        def to_all(self, frame: bytes) -> None:
            """One frame to every agent."""

        def resume_input(self) -> None:
            """Read standard input again."""

        def apply_back_pressure(self) -> None:
            """Something was written."""

        def drop_pending_output(self) -> None:
            """Wait no longer for who reads."""


_TRACE_SECONDS = 10.0  #: for --get-stack-traces, on all hosts at once
_TRACES_COME = 5.0  #: seconds more until they must have arrived
_STUCK = 3.0  #: seconds that a terminal nobody reads is waited for once a signal or --timeout has ended the job


class RunningInterrupts:
    """To the ranks of one launch."""

    def __init__(self, loop: Loop, ranks: InterruptHost, console: Console, grace: float) -> None:
        self._loop = loop
        self._ranks = ranks
        self._console = console
        self._grace = grace
        self._timers: list[Timer] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once, unless the launch is over by then."""
        self._timers.append(self._loop.after(seconds, callback))

    def stop(self) -> None:
        """The launch is over: the loop, which may carry others, keeps nothing of it."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def watch_signals(self) -> None:
        """Ctrl-C, SIGTERM and SIGHUP end the job, twice at once; USR1, USR2, ALRM, TSTP and CONT reach the ranks."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            self._loop.signal(getattr(signal, name), self._interrupter(name))
        for name in ("SIGUSR1", "SIGUSR2", "SIGALRM"):
            self._loop.signal(getattr(signal, name), self._forwarder(getattr(signal, name)))
        self._loop.signal(signal.SIGTSTP, self._stop)
        self._loop.signal(signal.SIGCONT, self._continue)

    def _interrupter(self, name: str) -> Callable[[], None]:
        def interrupted() -> None:
            phase = self._ranks.state.phase
            if phase == ENDING:
                self._console.info(f"{name}: killing the ranks")
            elif phase == RUNNING:
                self._console.info(f"{name}: ending the ranks; once more kills them at once")
            self._ranks.event(events.Interrupted(name))
            self.after(self._grace + _STUCK, self._abandon)

        return interrupted

    def _abandon(self) -> None:
        """Whoever reads nothing now, and whoever stops later."""
        self._ranks.drop_pending_output()
        self.after(_STUCK, self._abandon)

    def _forwarder(self, signum: int) -> Callable[[], None]:
        return lambda: self._signal(signum)

    def _signal(self, signum: int) -> None:
        self._ranks.to_all(frames.encode(frames.SIGNAL, payload=str(int(signum)).encode()))

    def _stop(self) -> None:
        """Ctrl-Z: the ranks stop, and so do we, or the shell would wait for us."""
        self._signal(signal.SIGSTOP)
        self._loop.soon(lambda: os.kill(os.getpid(), signal.SIGSTOP))  # once the frames are out

    def _continue(self) -> None:
        self._signal(signal.SIGCONT)
        self._ranks.resume_input()

    def limit_time(self, limit: events.TimedOut, left: float, report: bool) -> None:
        """`limit` is reached `left` seconds from now; `report`: say then how each rank is."""
        self.after(max(left, 0.0), lambda: self._timed_out(limit, report))

    def _timed_out(self, limit: events.TimedOut, report: bool) -> None:
        if report and self._ranks.state.phase == RUNNING:
            from mslaunch.launcher.messages.timeout_report import state_text

            self._console.print(state_text(self._ranks.state, limit.seconds))
        self._ranks.event(limit)
        looking = _TRACE_SECONDS + _TRACES_COME if limit.traces else 0.0
        self.after(looking + self._grace + _STUCK, self._abandon)

    def trace(self, nodes: Sequence[int]) -> None:
        """Ask for the stacks of all ranks on `nodes`."""
        for node in nodes:
            self._ranks.send(node, frames.encode(frames.TRACE, payload=f"{_TRACE_SECONDS:g}".encode()))
        self.after(_TRACE_SECONDS + _TRACES_COME, lambda: self._ranks.event(events.Traced(tuple(nodes))))

    def traced(self, node: int, frame: frames.Frame) -> None:
        """TRACES: one of them, or that these were all of the node."""
        if frame.rank == frames.NO_RANK:
            self._ranks.event(events.Traced((node,)))
            return
        from mslaunch.launcher.messages.timeout_report import trace_text

        state = self._ranks.state
        traced = control.unpack_traced(frame.payload)
        self._console.print(trace_text(state.worlds.name(frame.rank), state.hosts[node], traced))
        self._ranks.apply_back_pressure()
