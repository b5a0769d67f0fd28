"""--ready: programs that wait for the port of another one, as histories of the state of a job."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from histories import exited, failure_of, make_state
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.errors import EXIT_LOST, EXIT_TIMEOUT, LinkError
from mslaunch.launcher.job.events import (
    READY,
    AwaitPort,
    CancelTimer,
    End,
    Interrupted,
    LinkEnded,
    PortOpened,
    Prepared,
    Restart,
    Resumed,
    SetTimer,
    Start,
    Started,
    StreamEnded,
    Suspended,
    TimedOut,
    TimerFired,
    Traced,
)
from mslaunch.launcher.job.job_state import ENDING, JobState
from mslaunch.launcher.job.program_starts import SEEN_SECONDS, ProgramStarts
from mslaunch.launcher.mpi.mpi_frames import Joined, Left
from mslaunch.plan.program_steps import MEETING_PORT, ProgramStep

NODES = (Node("n0", 8, "-H"), Node("n1", 8, "-H"))
#: rank 0 on n0 is the head of ranks 1 on n0 and 2 on n1
TWO = (ProgramStep(frozenset({0}), 0, 6379), ProgramStep(frozenset({1, 2})))
#: rank 0 is that of rank 1, which is that of rank 2
THREE = (
    ProgramStep(frozenset({0}), 0, 6379),
    ProgramStep(frozenset({1}), 1, MEETING_PORT),
    ProgramStep(frozenset({2})),
)
HEAD = [Prepared((), 7000), Started(0, 100)]
OPEN = [*HEAD, PortOpened(0)]
KINDS = (Start, AwaitPort, End, Restart)


def state_of(steps: tuple[ProgramStep, ...] = TWO, **policy: Any) -> JobState:
    nodes = (0, 0, 1)
    rows = tuple(Placement(rank, min(rank, 1), node, nodes[:rank].count(node)) for rank, node in enumerate(nodes))
    return make_state(JobMap(NODES, rows, 16), order=ProgramStarts(steps, 60.0), **policy)


def actions(state: JobState, *happened: Any) -> list[Any]:
    found = [action for event in happened for action in state.on(event)]
    return [action for action in found if isinstance(action, KINDS) or getattr(action, "timer", "") == READY]


def over(rank: int, code: int | None = 0, signum: int | None = None) -> list[Any]:
    return [exited(rank, max(0, rank - 1), code, signum), StreamEnded(rank), StreamEnded(rank)]


def reasons(state: JobState) -> list[str]:
    return [status.reason for status in state.table.statuses()]


SET, CANCEL = SetTimer(READY, 60.0), CancelTimer(READY)
ENDED = End((0, 1))


def test_later_ranks_start_when_the_head_listens() -> None:
    state = state_of()
    assert actions(state, *HEAD) == [Start(0), SET, CANCEL, SET, AwaitPort(0, 0, 100, 6379)]
    assert actions(state, PortOpened(0)) == [CANCEL, Start(1)]
    assert actions(state, Started(1, 101), Started(2, 102)) == []
    assert actions(state, *over(1), *over(2)) == [] and not state.finished
    assert actions(state, *over(0)) == []
    assert (state.finished, state.code, reasons(state)) == (True, 0, ["", "", ""])


def test_each_program_waits_for_the_one_before() -> None:
    state = state_of(THREE)
    actions(state, *HEAD)
    assert actions(state, PortOpened(0)) == [CANCEL, Start(1), SET]
    assert actions(state, Started(1, 101)) == [CANCEL, SET, AwaitPort(1, 0, 101, 7000)], "MASTER_PORT"
    assert actions(state, PortOpened(0)) == [], "that was the one before"
    assert actions(state, PortOpened(1)) == [CANCEL, Start(2)]


@pytest.mark.parametrize(
    ("code", "signum", "how", "exit_code"),
    [
        (0, None, "ended with exit code 0", 1),
        (3, None, "ended with exit code 3", 3),
        (None, signal.SIGKILL, "was ended by SIGKILL (killed)", 137),
    ],
)
def test_a_head_that_ends_first_ends_the_job(code: int | None, signum: int | None, how: str, exit_code: int) -> None:
    state = state_of()
    assert actions(state, *HEAD, *over(0, code, signum))[-2:] == [CANCEL, ENDED]
    assert failure_of(state).what == f"rank 0, for whose port 6379 the next program waits, {how}"
    assert (state.finished, state.code, reasons(state)) == (True, exit_code, ["", "not started", "not started"])


@pytest.mark.parametrize("policy", [{"recovery": True}, {"abort_on_failure": False}])
def test_nobody_else_could_open_its_port(policy: dict[str, bool]) -> None:
    state = state_of(**policy)
    actions(state, *HEAD, *over(0, 3))
    assert (state.finished, state.code) == (True, 3)


def test_a_head_that_is_started_again_is_waited_for_anew() -> None:
    state = state_of(max_restarts=1)
    actions(state, *HEAD)
    assert actions(state, *over(0, 3)) == [Restart(0, 0, 1)]
    assert actions(state, Started(0, 200)) == [CANCEL, SET, AwaitPort(0, 0, 200, 6379)]
    assert actions(state, *over(0, 4)) == [CANCEL, ENDED]
    assert (state.finished, state.code) == (True, 4)


def test_a_head_may_fail_again_once_it_has_listened() -> None:
    state = state_of(max_restarts=1)
    actions(state, *OPEN, Started(1, 101), Started(2, 102))
    assert actions(state, *over(0, 3), Started(0, 200)) == [Restart(0, 0, 1)], "the others are there"


def test_the_time_is_limited() -> None:
    state = state_of()
    assert actions(state, *HEAD, TimerFired(READY))[-1] == ENDED
    assert failure_of(state).what == "rank 0 did not listen at port 6379 within 60 seconds (--ready-timeout)"
    actions(state, *over(0, None, signal.SIGTERM))
    assert (state.finished, state.code) == (True, EXIT_TIMEOUT)


def test_a_job_that_is_suspended_loses_no_time_of_it() -> None:
    state = state_of()
    actions(state, *HEAD)
    assert actions(state, Suspended()) == [CANCEL]
    assert actions(state, Resumed()) == [SET]
    assert actions(state, Resumed()) == [], "it runs"
    actions(state, PortOpened(0))
    assert actions(state, Suspended(), Resumed()) == [], "nobody is waited for"


def test_neither_does_one_that_ends_or_has_a_head_in_mpi() -> None:
    state = state_of()
    actions(state, *HEAD, Joined(0))
    assert actions(state, Suspended(), Resumed()) == [CANCEL, SetTimer(READY, SEEN_SECONDS)]
    actions(state, Interrupted("SIGINT"))
    assert actions(state, Suspended(), Resumed()) == []


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (Interrupted("SIGINT"), 1),
        (TimedOut(2), EXIT_TIMEOUT),
        (LinkEnded(1, LinkError("gone", "n1")), EXIT_LOST),
    ],
)
def test_whatever_ends_the_job_ends_the_wait(event: Any, code: int) -> None:
    state = state_of()
    actions(state, *HEAD)
    assert CANCEL in actions(state, event)
    assert actions(state, PortOpened(0)) == [], "the head may listen just now"
    actions(state, *over(0, None, signal.SIGTERM))
    assert (state.finished, state.code) == (True, code)


def test_the_host_of_the_head_is_lost() -> None:
    state = state_of()
    assert actions(state, *HEAD, LinkEnded(0))[-1] == End((1,))
    assert (state.finished, state.code, reasons(state)) == (True, EXIT_LOST, ["lost", "not started", "not started"])
    assert failure_of(state).what == "the host was lost while ranks ran there"


def test_a_host_is_lost_whose_ranks_wait() -> None:
    state = state_of()
    assert actions(state, *HEAD, LinkEnded(1))[-1] == End((0,))
    assert failure_of(state).what == "the host was lost before its ranks were started"
    actions(state, exited(0, 0, None, signal.SIGTERM, asked=True), *over(0)[1:])
    assert (state.finished, state.code, reasons(state)) == (True, EXIT_LOST, ["ended", "not started", "not started"])


def test_no_program_starts_while_stacks_are_read() -> None:
    state = state_of()
    actions(state, *HEAD, TimedOut(2, traces=True))
    assert actions(state, PortOpened(0)) == []
    assert actions(state, Traced((0,)))[-1] == ENDED


def test_mpi_cannot_meet_ranks_that_wait() -> None:
    state = state_of()
    actions(state, *HEAD)
    assert actions(state, Joined(0)) == [CANCEL, SetTimer(READY, SEEN_SECONDS)]
    assert actions(state, TimerFired(READY)) == [ENDED]
    what = "rank 0 is in MPI_Init, where all ranks meet, and others are not started before it listens at port 6379"
    assert failure_of(state).what == what


def test_a_head_in_mpi_may_listen_already() -> None:
    state = state_of()
    actions(state, *HEAD, Joined(0))
    assert actions(state, PortOpened(0)) == [CANCEL, Start(1)], "the agent looks some times a second"


def test_others_than_the_head_may_wait_in_mpi() -> None:
    state = state_of(THREE)
    actions(state, *HEAD, PortOpened(0), Started(1, 101))
    assert actions(state, Joined(0)) == []
    assert actions(state, PortOpened(1)) == [CANCEL, Start(2)]


def test_mpi_meets_once_all_run() -> None:
    state = state_of()
    events = [event for rank in range(3) for event in (Joined(rank), Left(rank))]
    actions(state, *OPEN, Started(1, 101), Started(2, 102), *events, *over(0), *over(1), *over(2))
    assert (state.finished, state.code) == (True, 0)


def test_a_head_that_cannot_be_started() -> None:
    state = state_of()
    actions(state, Prepared((), 7000), exited(0, 0, 127, None, "the program 'x' was not found", "give its path"))
    assert (state.finished, state.code, failure_of(state).what) == (True, 127, "the program 'x' was not found")


EVENTS = st.one_of(
    st.sampled_from(
        [PortOpened(0), PortOpened(1), PortOpened(2), TimerFired(READY), Interrupted("SIGINT"), TimedOut(2)]
    ),
    st.integers(0, 2).map(Joined),
    st.integers(0, 1).map(LinkEnded),
    st.integers(0, 2).map(lambda rank: Started(rank, 300 + rank)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=12), st.sampled_from([TWO, THREE]))
def test_no_rank_starts_too_early_or_after_the_end(events: list[Any], steps: tuple[ProgramStep, ...]) -> None:
    state = state_of(steps)
    started: list[int] = []
    for event in [Prepared((), 7000), *events]:
        ending = state.phase == ENDING
        for action in state.on(event):
            if isinstance(action, Start):
                assert not ending and action.step == len(started)
                assert action.step == 0 or event == PortOpened(steps[action.step - 1].head)
                started.append(action.step)
    if state.phase == ENDING:
        waiting = [rank for step in steps[len(started) :] for rank in step.ranks]
        assert all(state.table.ranks[rank].over for rank in waiting)


def test_a_rank_of_input_is_reached_by_its_step() -> None:
    order = ProgramStarts(THREE, 0)
    assert (order.reached([0]), order.reached([0, 1]), order.reached([]), order.held()) == (True, False, True, [1, 2])
