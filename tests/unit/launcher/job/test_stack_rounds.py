"""Stacks of ranks in histories of events: hangs, failures of others, and whoever asks."""

from __future__ import annotations

from typing import Any

import pytest
from histories import exited, failure_of

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.launcher.job import events
from mslaunch.launcher.job.events import (
    ASKED,
    ON_FAILURE,
    ON_HANG,
    ON_TIMEOUT,
    CancelTimer,
    End,
    Hung,
    Interrupted,
    Kill,
    LinkEnded,
    Notify,
    Prepared,
    Restart,
    SetTimer,
    ShowStacks,
    StacksAsked,
    StacksShown,
    Start,
    Started,
    StreamEnded,
    TimedOut,
    TimerFired,
    Trace,
    Traced,
)
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job.restart_policy import RestartPolicy
from mslaunch.launcher.mpi.mpi_frames import Aborted, Joined

TWO_HOSTS = JobMap(
    (Node("n0", 2, "-H"), Node("n1", 1, "-H")), (Placement(0, 0, 0, 0), Placement(1, 0, 0, 1), Placement(2, 0, 1, 0)), 3
)
RUN = [Prepared(), Started(0, 9, 0), Started(1, 9, 0), Started(2, 9, 1)]
HUNG = Hung(60)
BOTH = (0, 1)
TEXT = "rank 2 in time.sleep (t.py:3); 2 ranks in MPI_Barrier (t.py:6)"
SHOWN = StacksShown((ON_HANG,), TEXT, (2,))


def state_of(**policy: Any) -> JobState:
    return JobState(TWO_HOSTS, RestartPolicy(**policy), 1, 2.0)


def happen(state: JobState, *happened: Any) -> list[Any]:
    """Actions without those about timers that nobody looks at here."""
    timers = (SetTimer, CancelTimer)
    return [
        action
        for event in happened
        for action in state.on(event)
        if not (isinstance(action, timers) and action.timer != events.TRACES)
    ]


def over(rank: int, node: int, code: int | None, signum: int | None = None) -> list[Any]:
    return [exited(rank, node, code, signum), StreamEnded(rank)]


def begun(**policy: Any) -> JobState:
    state = state_of(**policy)
    assert happen(state, *RUN) == [Start()]
    return state


# --- hangs


def test_a_job_that_hangs_ends_once_it_is_known_what_ranks_do() -> None:
    state = begun()
    assert happen(state, HUNG) == [Trace(BOTH, 6.0), SetTimer(events.TRACES, 8.0)]
    assert happen(state, Traced((0,))) == []
    assert happen(state, Traced((1,))) == [CancelTimer(events.TRACES), ShowStacks((ON_HANG,), (), HUNG)]
    assert happen(state, SHOWN) == [End(BOTH)]
    happen(state, *over(0, 0, None, 15), *over(1, 0, None, 15), *over(2, 1, None, 15))
    failure = failure_of(state)
    assert (failure.what, failure.detail) == ("no rank has printed anything for 60 seconds (--hang-timeout)", (TEXT,))
    assert (state.code, state.restartable, state.finished) == (110, False, True)


def test_hosts_that_do_not_answer_are_named_after_their_time() -> None:
    state = begun()
    happen(state, HUNG, Traced((0,)))
    assert happen(state, TimerFired(events.TRACES)) == [ShowStacks((ON_HANG,), (1,), HUNG)]
    assert happen(state, SHOWN) == [End(BOTH)]
    assert happen(state, Traced((1,))) == []


def test_without_stacks_it_ends_at_once() -> None:
    state = begun()
    assert happen(state, HUNG._replace(stacks=False)) == [End(BOTH)]
    assert failure_of(state).detail == ()


def test_a_group_that_hangs_may_be_started_again() -> None:
    state = begun(restart="group", max_restarts=3)
    happen(state, HUNG._replace(then="restart"), Traced(BOTH))
    assert happen(state, SHOWN) == [End(BOTH)]
    assert state.restartable
    state = begun(restart="group", max_restarts=3)
    happen(state, HUNG, Traced(BOTH), SHOWN)
    assert not state.restartable, "--on-hang end"


def test_the_odd_rank_alone_is_started_again() -> None:
    state = begun(restart="rank", max_restarts=3)
    happen(state, HUNG._replace(then="restart"), Traced(BOTH))
    notice, kill = happen(state, SHOWN)
    assert (notice.kind, notice.facts["ranks"], kill) == ("hung ranks", [2], Kill(2, 1))
    assert [type(action) for action in happen(state, exited(2, 1, None, 9))] == [Notify, Restart]
    assert not state.failure


@pytest.mark.parametrize("odd", [(), (0, 1, 2)])
def test_where_no_rank_is_odd_all_are(odd: tuple[int, ...]) -> None:
    state = begun(restart="rank", max_restarts=3)
    happen(state, HUNG._replace(then="restart"), Traced(BOTH))
    assert happen(state, SHOWN._replace(odd=odd))[1:] == [Kill(0, 0), Kill(1, 0), Kill(2, 1)]


def test_a_rank_that_may_not_be_started_again_ends_the_job() -> None:
    """It is in MPI, where the others would not know a new one; or it was started again as often as it may be."""
    state = begun(restart="rank", max_restarts=1)
    happen(state, *map(Joined, range(3)), HUNG._replace(then="restart"), Traced(BOTH))
    assert happen(state, SHOWN) == [End(BOTH)]
    assert (state.code, failure_of(state).detail) == (110, (TEXT,))
    state = begun(restart="rank", max_restarts=1)
    again = [HUNG._replace(then="restart"), Traced(BOTH), SHOWN]
    happen(state, *again, *over(2, 1, None, 9), Started(2, 9, 1), *again[:2])
    assert happen(state, again[2]) == [End(BOTH)]


def test_a_report_ends_nothing_and_may_come_again() -> None:
    state = begun()
    report = HUNG._replace(then="report")
    for _ in range(3):
        assert happen(state, report)[0] == Trace(BOTH, 6.0)
        assert happen(state, report) == [], "one at a time"
        assert happen(state, Traced(BOTH))[1:] == [ShowStacks((ON_HANG,), (), report)]
        assert happen(state, SHOWN) == []
    assert [action.kind for action in happen(state, report._replace(stacks=False))] == ["hung"]
    assert not state.failure


def test_a_failure_while_it_is_looked_does_not_become_the_cause() -> None:
    state = begun()
    assert happen(state, HUNG, *over(0, 0, 3))[-1] == End(BOTH)
    happen(state, Traced(BOTH), SHOWN)
    assert (state.code, failure_of(state).detail) == (110, (TEXT,)), "what came late is told"


def test_a_time_limit_while_it_is_looked_ends_the_job() -> None:
    state = begun()
    assert happen(state, HUNG, TimedOut(100, traces=True))[-1] == End(BOTH)
    assert "--hang-timeout" in failure_of(state).what


def test_nothing_is_found_before_the_ranks_run_or_while_they_are_ended() -> None:
    state = state_of()
    assert happen(state, HUNG) == []
    state = begun()
    happen(state, Interrupted("SIGINT"))
    assert happen(state, HUNG) == []


# --- failures of others


def test_the_others_are_looked_at_before_they_are_ended() -> None:
    state = begun(stacks=True)
    assert happen(state, exited(2, 1, 3, None)) == [Trace((0,), 1.5), SetTimer(events.TRACES, 2.0)]
    assert happen(state, StreamEnded(2)) == []
    assert happen(state, Traced((0,))) == [CancelTimer(events.TRACES), ShowStacks((ON_FAILURE,)), End(BOTH)]
    happen(state, *over(0, 0, None, 15), *over(1, 0, None, 15))
    assert (state.code, state.finished) == (3, True)


def test_they_are_ended_after_two_seconds_at_the_latest() -> None:
    state = begun(stacks=True)
    happen(state, exited(2, 1, 3, None))
    assert happen(state, TimerFired(events.TRACES)) == [ShowStacks((ON_FAILURE,), (0,)), End(BOTH)]


def test_who_fails_meanwhile_is_a_victim() -> None:
    state = begun(stacks=True)
    happen(state, exited(2, 1, 3, None))
    assert happen(state, exited(0, 0, 5, None), LinkEnded(1)) == []
    assert happen(state, Traced((0,)))[-1] == End((0,))
    assert state.code == 3


def test_what_made_others_abort_is_the_cause_all_the_same() -> None:
    state = begun(stacks=True)
    happen(state, *map(Joined, range(3)))
    happen(state, Aborted(0, 1, "connection closed"), exited(2, 1, None, 11))
    happen(state, Traced(BOTH))
    assert (state.code, failure_of(state).rank) == (128 + 11, 2)


@pytest.mark.parametrize("event", [Interrupted("SIGINT"), events.Unread(), TimedOut(5), HUNG._replace(stacks=False)])
def test_who_waits_for_the_end_does_not_wait_for_stacks(event: Any) -> None:
    state = begun(stacks=True)
    assert End(BOTH) in happen(state, event)


def test_ctrl_c_while_it_is_looked_ends_the_job_at_once() -> None:
    state = begun(stacks=True)
    happen(state, exited(2, 1, 3, None))
    assert End(BOTH) in happen(state, Interrupted("SIGINT"))
    assert state.code == 3


def test_the_last_host_that_is_waited_for_is_lost() -> None:
    state = begun(stacks=True)
    happen(state, exited(0, 0, 3, None), Traced((0,)))
    assert happen(state, LinkEnded(1))[-1] == End((0,))


def test_all_others_end_by_themselves() -> None:
    state = begun(stacks=True)
    happen(state, *over(2, 1, 3), *over(0, 0, 0), *over(1, 0, 0))
    assert (state.finished, state.code) == (True, 3)


def test_where_the_others_go_on_nobody_looks() -> None:
    state = begun(stacks=True, recovery=True)
    assert happen(state, *over(2, 1, 3)) == []
    state = begun(stacks=True)
    assert happen(state, *over(0, 0, 0), *over(1, 0, 0), *over(2, 1, 3)) == [End(BOTH)], "no other is left"


# --- whoever asks


def test_stacks_may_be_asked_for_at_any_time() -> None:
    state = begun()
    assert happen(state, StacksAsked()) == [Trace(BOTH, 4.0), SetTimer(events.TRACES, 5.5)]
    assert happen(state, StacksAsked()) == [], "both get the same"
    assert happen(state, Traced(BOTH))[1:] == [ShowStacks((ASKED, ASKED))]
    assert happen(state, StacksShown((ASKED, ASKED), TEXT, (2,))) == []
    assert happen(state, StacksAsked())[0] == Trace(BOTH, 4.0)
    assert not state.failure


def test_where_nobody_runs_the_answer_comes_at_once() -> None:
    assert happen(state_of(), StacksAsked()) == [ShowStacks((ASKED,))]
    state = begun()
    happen(state, Interrupted("SIGINT"))
    assert happen(state, StacksAsked()) == [ShowStacks((ASKED,))]


def test_a_failure_shortens_a_round_that_runs() -> None:
    state = begun(stacks=True)
    happen(state, StacksAsked())
    assert happen(state, exited(2, 1, 3, None)) == [CancelTimer(events.TRACES), SetTimer(events.TRACES, 2.0)]
    assert happen(state, Traced(BOTH))[1:] == [ShowStacks((ASKED, ON_FAILURE)), End(BOTH)]


def test_a_time_limit_takes_part_in_a_round_that_runs() -> None:
    state = begun()
    happen(state, StacksAsked(), TimedOut(9, traces=True))
    assert happen(state, Traced(BOTH))[1:] == [ShowStacks((ASKED, ON_TIMEOUT)), End(BOTH)]
    assert state.code == 110


def test_a_round_that_runs_while_the_job_is_ended_comes_to_its_end() -> None:
    state = begun()
    happen(state, StacksAsked(), Interrupted("SIGINT"))
    assert happen(state, Traced(BOTH))[1:] == [ShowStacks((ASKED,))]
