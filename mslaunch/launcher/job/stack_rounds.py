"""Rounds of questions for the stacks of all ranks: when they are asked for, who has not answered, and what follows.

A part of the state of a job, made when stacks are wanted for the first time.  One round runs at a time, and whoever
wants stacks meanwhile gets those of this round.  `on` returns actions, and the failure that ends the job now.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_TIMEOUT
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher import job_failure
from mslaunch.launcher.job import events
from mslaunch.launcher.job.events import ASKED, ON_FAILURE, ON_HANG, ON_TIMEOUT, Hung, Kill, Notify, ShowStacks, Trace
from mslaunch.launcher.job_failure import JobFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.launcher.job.events import JobTimers
    from mslaunch.launcher.job.first_cause import FirstCause
    from mslaunch.launcher.job.rank_table import RankState, RankTable
    from mslaunch.launcher.job.restart_policy import RestartPolicy

#: failures that --stacks-on failure does not hold up: somebody waits for the end, or no rank has got anywhere
_AT_ONCE = frozenset((
    job_failure.INTERRUPTED, job_failure.UNREAD, job_failure.TIMED_OUT, job_failure.HUNG, job_failure.NOT_STARTED,
    job_failure.NO_PORTS, job_failure.SINGLETON, job_failure.TOO_LARGE,
))  # fmt: skip


class RoundLimits(NamedTuple):
    """How long a round may take, in seconds."""

    agents: float  # for the agents to look at all processes
    answers: float  # more, until their answers must have come

    @property
    def all(self) -> float:
        """Both."""
        return self.agents + self.answers


LIMITS = {
    ON_TIMEOUT: RoundLimits(10.0, 5.0),
    ON_HANG: RoundLimits(6.0, 2.0),
    ASKED: RoundLimits(4.0, 1.5),
    ON_FAILURE: RoundLimits(1.5, 0.5),
}


class StackRounds:
    """The rounds of one job."""

    def __init__(
        self, table: RankTable, timers: JobTimers, cause: FirstCause, policy: RestartPolicy, grace: float
    ) -> None:
        """`grace` in seconds, between TERM and KILL."""
        self._table = table
        self._timers = timers
        self._cause = cause
        self._policy = policy
        self._grace = grace
        self._waiting: set[int] = set()  # nodes
        self._why: tuple[str, ...] = ()  # of this round; (): there is none
        self._hung: Hung | None = None
        self._handlers: dict[type, Callable[[Any, bool], tuple[list[Any], JobFailure | None]]] = {
            events.TimedOut: self._timed_out,
            events.Hung: self._found_hung,
            events.StacksAsked: self._asked,
            events.Traced: self._traced,
            events.TimerFired: lambda event, running: self._end(running),
            events.StacksShown: self._shown,
        }

    def on(self, event: Any, running: bool) -> tuple[list[Any], JobFailure | None]:
        """Take in one event; `running`: the ranks run, and are not being ended."""
        return self._handlers[type(event)](event, running)

    # --- a round

    def _begin(self, why: str) -> list[Any] | None:
        """A new round, or a part in the one that runs; None if no rank can be asked about."""
        limits = LIMITS[why]
        if self._why:
            self._why += (why,)
            if why != ON_FAILURE:
                return []
            return [*self._timers.cancel(events.TRACES), *self._timers.set(events.TRACES, limits.all)]
        nodes = {rank.node for rank in self._running()} & self._table.alive
        if not nodes:
            return None
        self._waiting, self._why = nodes, (why,)
        return [Trace(tuple(sorted(nodes)), limits.agents), *self._timers.set(events.TRACES, limits.all)]

    def _running(self) -> list[RankState]:
        return [rank for rank in self._table.ranks.values() if rank.pid and not rank.ended]

    def _traced(self, event: events.Traced, running: bool) -> tuple[list[Any], JobFailure | None]:
        self._waiting.difference_update(event.nodes)
        return ([], None) if self._waiting else self._end(running)

    def _end(self, running: bool) -> tuple[list[Any], JobFailure | None]:
        """All have answered, or have had their time."""
        if not self._why:
            return [], None
        show = ShowStacks(self._why, tuple(sorted(self._waiting)), self._hung if ON_HANG in self._why else None)
        self._waiting, self._why = set(), ()
        overdue = self._cause.overdue
        waits = overdue is None or overdue.kind == job_failure.HUNG  # whose text will say what the ranks do
        return [*self._timers.cancel(events.TRACES), show], None if waits or not running else overdue

    # --- reasons

    def _asked(self, event: events.StacksAsked, running: bool) -> tuple[list[Any], JobFailure | None]:
        begun = self._begin(ASKED) if running or self._why else None
        return [ShowStacks((ASKED,))] if begun is None else begun, None

    def _timed_out(self, event: events.TimedOut, running: bool) -> tuple[list[Any], JobFailure | None]:
        facts = {"seconds": event.seconds, "source": event.source}
        failure = JobFailure(job_failure.TIMED_OUT, facts, code=EXIT_TIMEOUT)
        self._cause.stopped = True
        report = [events.ReportState(event.seconds)] if event.report and running else []
        if not running or self._cause.overdue:
            return [*report, *self._drain(ON_TIMEOUT, None)], self._cause.overdue or failure
        begun = self._begin(ON_TIMEOUT) if event.traces else None
        drain = self._drain(ON_TIMEOUT, begun)
        return [*report, *self._hold(begun, failure), *drain], failure if begun is None else None

    def _drain(self, why: str, begun: list[Any] | None) -> list[Any]:
        """A terminal that nobody reads does not keep the job."""
        looking = 0.0 if begun is None else LIMITS[why].all
        return self._timers.set(events.DRAIN_TIMED_OUT, looking + self._grace + events.STUCK)

    def before_end(self, failure: JobFailure) -> list[Any] | None:
        """--stacks-on failure: what comes before the end of the job by `failure`; None: it may be ended."""
        overdue = self._cause.overdue
        if failure is overdue or failure.kind in _AT_ONCE:
            return None
        if overdue:
            return [] if self._cause.held else None
        begun = self._begin(ON_FAILURE)
        return begun if begun is None else self._hold(begun, failure)

    def _hold(self, begun: list[Any] | None, failure: JobFailure) -> list[Any]:
        """Stacks are waited for, and then the job ends by `failure`."""
        if begun is not None:
            self._cause.failure = self._cause.overdue = failure
        return begun or []

    # --- hangs

    def _found_hung(self, event: Hung, running: bool) -> tuple[list[Any], JobFailure | None]:
        if not running or self._cause.overdue or ON_HANG in self._why:
            return [], None
        self._hung = event
        begun = self._begin(ON_HANG) if event.stacks else None
        if not self._ends(event):
            if begun is None:
                return self._go_on(event, ())
            return begun, None
        failure = self._failure(event)
        drain = self._drain(ON_HANG, begun) if event.then == "end" else []
        return [*self._hold(begun, failure), *drain], failure if begun is None else None

    def _ends(self, event: Hung) -> bool:
        """Whether the job, or this attempt, is ended."""
        return event.then == "end" or (event.then == "restart" and not self._policy.rank_limit)

    def _failure(self, event: Hung, text: str = "") -> JobFailure:
        facts = {**_facts(event), "text": text, "again": event.then == "restart"}
        return JobFailure(job_failure.HUNG, facts, code=EXIT_TIMEOUT)

    def _shown(self, event: events.StacksShown, running: bool) -> tuple[list[Any], JobFailure | None]:
        hung = self._hung
        if hung is None or ON_HANG not in event.why:
            return [], None
        before = self._cause.failure
        if before and before.kind == job_failure.HUNG:
            self._cause.failure = failure = self._failure(hung, event.text)
            self._cause.overdue = self._cause.overdue and failure
            return [], failure if running else None
        return self._go_on(hung, event.odd, event.text) if running and not self._cause.overdue else ([], None)

    def _go_on(self, hung: Hung, odd: tuple[int, ...], text: str = "") -> tuple[list[Any], JobFailure | None]:
        """--on-hang report; or restart, of the ranks that do what the others do not, or of all."""
        facts = _facts(hung)
        if hung.then == "report":
            return [] if text else [Notify("hung", facts)], None
        ranks = [rank for rank in self._running() if rank.rank in odd or not odd]
        if not ranks:
            return [], None
        if not all(map(self._policy.restarts_rank, ranks)):
            return [], self._failure(hung, text)
        notice = Notify("hung ranks", {**facts, "ranks": [rank.rank for rank in ranks]})
        return [notice, *(Kill(rank.rank, rank.node) for rank in ranks)], None


def _facts(hung: Hung) -> dict[str, Any]:
    return {"seconds": hung.seconds, "file": hung.file, "missing": hung.missing}
