"""The timers of a job, in virtual time: events at given seconds, and the actions that follow."""

from __future__ import annotations

from typing import Any

from histories import exited, failure_of, make_state

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.launcher.job import events
from mslaunch.launcher.job.events import (
    Began,
    CancelTimer,
    DropOutput,
    End,
    GiveUp,
    GiveUpPreparing,
    Interrupted,
    LinkEnded,
    Paused,
    Prepared,
    Restart,
    SetTimer,
    Start,
    Started,
    TimedOut,
    TimerFired,
    Trace,
)
from mslaunch.launcher.job.job_state import JobState

RUN = [(0, Prepared()), (0, Started(0, 9)), (0, Started(1, 9))]


def state_of(**how: Any) -> JobState:
    return make_state(JobMap((Node("n0", 2, "-H"),), (Placement(0, 0, 0, 0), Placement(1, 0, 0, 1)), 2), **how)


def played(state: JobState, history: list[tuple[float, Any]], until: float = 1000.0) -> list[tuple[float, Any]]:
    """The actions with their seconds, without those that set timers or notify the user."""
    timers: dict[str, float] = {}
    found = []
    coming = sorted(history, key=lambda one: one[0])
    while True:
        due = min(timers.items(), key=lambda one: one[1], default=("", until))
        if coming and coming[0][0] <= due[1]:
            now, event = coming.pop(0)
        elif due[1] < until:
            now, event = due[1], TimerFired(due[0])
            del timers[due[0]]
        else:
            return found
        for action in state.on(event):
            if isinstance(action, SetTimer):
                timers[action.timer] = now + action.seconds
            elif isinstance(action, CancelTimer):
                del timers[action.timer]
            elif not isinstance(action, (events.Notify, events.ShowStacks)):
                found.append((now, action))


def test_addresses_are_waited_for_ten_seconds() -> None:
    state = state_of()
    assert played(state, [(0, Began())]) == [(10, GiveUpPreparing())]
    state.on(LinkEnded(0))
    assert state.finished
    assert played(state_of(), [(0, Began()), (9, Prepared())]) == [(9, Start())]


def test_or_for_as_long_as_a_host_may_take_to_connect() -> None:
    assert played(state_of(), [(0, Began(60.0))]) == [(60, GiveUpPreparing())]


def test_services_are_waited_for_thirty_seconds() -> None:
    assert played(state_of(), [(1, Prepared(((SERVICE, 0),)))])[1:] == [(31, Start())]
    ready = [(1, Prepared(((SERVICE, 0),))), (5, events.Serves(SERVICE))]
    assert played(state_of(), ready)[1:] == [(5, Start())]


def test_a_restart_waits_for_its_delay() -> None:
    failed = [*RUN, (3, exited(1, 0, 3, None))]
    assert played(state_of(max_restarts=2, delay=7.0), failed)[1:] == [(10, Restart(1, 0, 1))]


def test_the_delay_of_a_rank_doubles_until_it_has_run_for_long() -> None:
    state = state_of(max_restarts=9, delay=2.0, max_delay=7.0)
    history: list[tuple[float, Any]] = [(0, Prepared()), (0, Started(0, 9)), (0, Started(1, 9, 0, 0))]
    for start, end in ((0, 1), (3, 4), (8, 9), (16, 17), (24, 31), (33, 34)):
        history += [(start, Started(1, 9, 0, start)), (end, exited(1, 0, 3, None)._replace(at=float(end)))]
    starts = [now for now, action in played(state, history) if isinstance(action, Restart)]
    assert starts == [1 + 2, 4 + 4, 9 + 7, 17 + 7, 31 + 2, 34 + 4]


def test_the_end_of_a_job_cancels_a_delayed_restart() -> None:
    history = [*RUN, (3, exited(1, 0, 3, None)), (4, Interrupted("SIGINT"))]
    actions = played(state_of(max_restarts=2, delay=7.0), history, until=5.0)
    assert actions[1:] == [(4, End((0,))), (4, Restart(1, 0, 1))]


def test_ranks_are_given_up_ten_seconds_after_kill() -> None:
    actions = played(state_of(grace=2.0), [*RUN, (5, exited(0, 0, 3, None))])
    assert actions[1:] == [(5, End((0,))), (17, GiveUp((0,)))]


def test_no_rank_is_given_up_while_output_is_paused() -> None:
    history = [*RUN, (5, exited(0, 0, 3, None)), (6, Paused(True)), (20, Paused(False))]
    assert played(state_of(grace=2.0), history)[2:] == [(27, GiveUp((0,)))]


def test_a_second_interrupt_counts_from_its_own_time() -> None:
    history = [*RUN, (0, Interrupted("SIGINT")), (1, Interrupted("SIGINT"))]
    found = played(state_of(grace=60.0), history, until=70.0)
    assert [one for one in found if not isinstance(one[1], DropOutput)][1:] == [
        (0, End((0,))), (1, End((0,), now=True)), (11, GiveUp((0,))),
    ]  # fmt: skip


def test_unread_output_is_dropped_repeatedly_after_an_interrupt() -> None:
    found = played(state_of(grace=2.0), [*RUN, (1, Interrupted("SIGINT"))], until=11.0)
    assert [now for now, action in found if isinstance(action, DropOutput)] == [6, 9]


def test_stack_traces_are_awaited_before_the_end() -> None:
    state = state_of(grace=2.0)
    found = played(state, [*RUN, (4, TimedOut(4, traces=True))], until=21.0)
    assert found[1:] == [(4, Trace((0,))), (19, End((0,)))]
    assert failure_of(state).code == 110


def performed(state: JobState, *history: Any) -> list[Any]:
    """All actions in the order in which they are carried out, if each message finds that its reader has gone."""
    found: list[Any] = []
    for event in history:
        for action in state.on(event):
            found.append(action)
            if isinstance(action, events.Notify):
                found += performed(state, events.Unread())
    return found


def test_a_timer_is_set_before_a_message_can_end_the_job() -> None:
    state = state_of(max_restarts=2, delay=7.0)
    found = performed(state, *(event for _, event in RUN), exited(1, 0, 3, None))
    assert found.index(SetTimer("restart 1", 7.0)) < found.index(CancelTimer("restart 1"))


def test_ranks_are_started_before_a_message_can_end_the_job() -> None:
    found = performed(state_of(), Prepared(((SERVICE, 0),)), TimerFired(events.SERVE))
    assert found.index(Start()) < found.index(End((0,)))
