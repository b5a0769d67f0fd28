"""Histories for the state of a job: events go in, and the actions that concern agents come out."""

from __future__ import annotations

from typing import Any, NamedTuple

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.datamodel.outcome import Failure
from mslaunch.launcher.job import events
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job.program_starts import ProgramStarts
from mslaunch.launcher.job.restart_policy import RestartPolicy
from mslaunch.launcher.messages import failure_text
from mslaunch.launcher.messages.closing_report import restarts_text
from mslaunch.launcher.messages.failure_text import ending


class Restart(NamedTuple):
    """A restart that is announced and ordered."""

    rank: int
    node: int
    how: str
    number: int
    limit: int


def make_state(
    jobmap: JobMap,
    streams: int = 2,
    abort_on_failure: bool = True,
    recovery: bool = False,
    max_restarts: int = 0,
    *,
    restart: str = "",
    shared: bool = False,
    delay: float = 0.0,
    max_delay: float = 0.0,
    grace: float = 2.0,
    order: ProgramStarts | None = None,
) -> JobState:
    policy = RestartPolicy(abort_on_failure, recovery, max_restarts, restart, delay, max_delay)
    return JobState(jobmap, policy, streams, grace, shared, order)


def exited(
    rank: int, node: int, code: int | None, signum: int | None, error: str = "", todo: str = "", asked: bool = False
) -> events.Exited:
    return events.Exited(rank, node, ExitStatus(code, signum, error, todo, asked))


def tell(state: JobState, *happened: Any) -> list[Any]:
    """The actions for agents; timers and messages to the user have tests of their own."""
    found: list[Any] = []
    notice: Any = None
    for action in (action for event in happened for action in state.on(event)):
        if isinstance(action, events.Notify):
            notice = action.facts
        elif isinstance(action, events.Restart):
            status, limit = notice["status"], notice["limit"]
            found.append(Restart(action.rank, action.node, ending(status), action.number, limit))
        elif not isinstance(action, (events.SetTimer, events.CancelTimer, events.ReportState, events.ShowStacks)):
            found.append(action)
    return found


def failure_of(state: JobState) -> Failure:
    """The failure, as the user gets it."""
    assert state.failure
    return failure_text.failure_of(state.failure, state.table.names, state.table.hosts)


def restarts_of(state: JobState) -> tuple[str, ...]:
    """What was restarted, as the user gets it."""
    table = state.table
    return tuple(
        restarts_text(table.names.name(one.rank), table.hosts[one.node], one.past, one.run_count)
        for one in table.restarted()
    )
