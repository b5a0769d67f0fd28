"""The state of a launch, as histories: events on the left, the actions and the outcome that follow on the right."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import LinkError
from mslaunch.launcher.state import (
    End,
    Exited,
    Interrupted,
    JobState,
    LinkEnded,
    Prepared,
    Start,
    Started,
    StreamEnded,
    TimedOut,
    signal_name,
)
from mslaunch.model import SERVICE, JobMap, Node, Placement


def jobmap(*nodes: int) -> JobMap:
    """`nodes`: the node of each rank."""
    hosts = tuple(Node(f"n{number}", 8, "-H") for number in range(max(nodes) + 1))
    rows = tuple(Placement(rank, 0, node, nodes[:rank].count(node)) for rank, node in enumerate(nodes))
    return JobMap(hosts, rows, 8 * len(hosts))


ALL, NOW = End((0, 1)), End((0, 1), now=True)


def over(rank: int, code: int | None = 0, signum: int | None = None, node: int | None = None) -> list[Any]:
    """A rank of the map 0 0 1 (or the service) ends, and then its streams."""
    at = node if node is not None else max(0, rank - 1)
    return [Exited(rank, at, code, signum), StreamEnded(rank), StreamEnded(rank)]


def exits(*ranks: int) -> list[Any]:
    return [event for rank in ranks for event in over(rank)]


class History(NamedTuple):
    events: list[Any]
    actions: list[Any]
    what: str | None = None  # of the failure
    code: int = 0
    reasons: tuple[str, str, str] = ("", "", "")
    finished: bool = True
    abort: bool = True


RUN = [Prepared(), *(Started(rank, 100 + rank) for rank in range(3))]
MISSING = Exited(0, 0, 127, None, "the program 'x' was not found", "give its path")
SERVE = Started(SERVICE, 99)
SIGSEGV, SIGTERM, SIGKILL = int(signal.SIGSEGV), int(signal.SIGTERM), int(signal.SIGKILL)
GONE = LinkError("no route", "n1", code=255)
VICTIMS = ("", "ended", "ended")

HISTORIES = {
    "all well": History([*RUN, *exits(0, 1, 2)], [Start()]),
    "nothing has begun": History([], [], finished=False),
    "it runs": History(RUN, [Start()], finished=False),
    "not over before its streams": History(
        [*RUN, *exits(0, 1), Exited(2, 1, 0, None), StreamEnded(2)], [Start()], finished=False
    ),
    "streams may end first": History(
        [*RUN, *exits(0, 1), StreamEnded(2), StreamEnded(2), Exited(2, 1, 0, None)], [Start()]
    ),
    "the first failure wins": History(
        [*RUN, *over(0, 3), *over(1, 4), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        VICTIMS,
    ),
    "a good end before a failure stays one": History(
        [*RUN, *over(0), *over(1, 9), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 1 ended with exit code 9",
        9,
        ("", "", "ended"),
    ),
    "a failure is acted on before its streams end": History(
        [*RUN, Exited(0, 0, 3, None)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "not started", "not started"),
        finished=False,
    ),
    "a signal": History(
        [*RUN, *over(2, None, SIGSEGV), *over(0, None, SIGTERM), *over(1, 0)],
        [Start(), ALL],
        "rank 2 was ended by SIGSEGV (segmentation fault)",
        139,
        ("ended", "ended", ""),
    ),
    "not found: said once by each rank of a host": History(
        [Prepared(), MISSING, MISSING._replace(rank=1), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "the program 'x' was not found",
        127,
        ("not started", "not started", "ended"),
    ),
    "the service ends with the last rank": History(
        [*RUN, SERVE, *exits(0, 1, 2), *over(SERVICE, None, SIGTERM, 0)], [Start(), ALL]
    ),
    "the service is waited for": History([*RUN, SERVE, *exits(0, 1, 2)], [Start(), ALL], finished=False),
    "the service may end well by itself": History(
        [*RUN, SERVE, *over(SERVICE, 0, None, 0), *exits(0, 1, 2)], [Start()]
    ),
    "the service dies": History(
        [*RUN, SERVE, *over(SERVICE, None, SIGKILL, 0), *(e for r in range(3) for e in over(r, None, SIGTERM))],
        [Start(), ALL],
        "the MindSpore scheduler was ended by SIGKILL (killed) while ranks were running",
        1,
        ("ended", "ended", "ended"),
    ),
    "the service never starts": History(
        [*RUN, Exited(SERVICE, 0, 127, None), *(e for r in range(3) for e in over(r, None, SIGTERM))],
        [Start(), ALL],
        "the MindSpore scheduler ended with exit code 127 while ranks were running",
        1,
        ("ended", "ended", "ended"),
    ),
    "the service ends badly after all ranks": History(
        [*RUN, SERVE, *exits(0, 1, 2), *over(SERVICE, 1, None, 0)], [Start(), ALL]
    ),
    "a failure, then the service": History(
        [*RUN, SERVE, *over(0, 3), *over(1, None, SIGTERM), *over(2, None, SIGTERM), *over(SERVICE, None, SIGTERM, 0)],
        [Start(), ALL, ALL],
        "rank 0 ended with exit code 3",
        3,
        VICTIMS,
    ),
    "ending, and the last rank is lost with its host: the service must still be ended": History(
        [*RUN, SERVE, Interrupted("SIGINT"), *over(0), *over(1), LinkEnded(1), *over(SERVICE, None, SIGTERM, 0)],
        [Start(), ALL, End((0,))],
        "ended by SIGINT",
        1,
        ("ended", "ended", "lost"),
    ),
    "ending, and the last rank never started: the service must still be ended": History(
        [
            *[Prepared(), Started(0, 100), Started(1, 101), SERVE, *over(0, 3), *over(1, None, SIGTERM)],
            *[MISSING._replace(rank=2, node=1), *over(SERVICE, None, SIGTERM, 0)],
        ],
        [Start(), ALL, ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "ended", "not started"),
    ),
    "a link is lost before the start": History(
        [LinkEnded(1, GONE)], [], "no route", 255, ("not started", "not started", "not started")
    ),
    "a link is lost before the start, and nobody knows why": History(
        [LinkEnded(1), Prepared()],
        [],
        "the agent ended before the ranks were started",
        205,
        ("not started", "not started", "not started"),
    ),
    "a link is lost while ranks run": History(
        [*RUN, LinkEnded(1, GONE), *over(0, None, SIGTERM), *over(1, None, SIGTERM)],
        [Start(), End((0,))],
        "the host was lost while ranks ran there",
        205,
        ("ended", "ended", "lost"),
    ),
    "a link is lost with the last words of a rank": History(
        [*RUN, *exits(0, 1), Exited(2, 1, 0, None), LinkEnded(1)],
        [Start(), End((0,))],
        "the host was lost while ranks ran there",
        205,
    ),
    "a link is lost that nobody needs": History([*RUN, *exits(2), LinkEnded(1), *exits(0, 1)], [Start()]),
    "a link is lost while ending": History(
        [*RUN, *over(0, 3), LinkEnded(1), *over(1, None, SIGTERM)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "ended", "lost"),
    ),
    "the service goes with its host": History(
        [*RUN, SERVE, LinkEnded(0), *over(2, None, SIGTERM)],
        [Start(), End((1,))],
        "the host was lost while ranks ran there",
        205,
        ("lost", "lost", "ended"),
    ),
    "timeout": History(
        [*RUN, TimedOut(2.5), *(e for r in range(3) for e in over(r, None, SIGTERM))],
        [Start(), ALL],
        "the job was still running after 2.5 seconds (--timeout)",
        110,
        ("ended", "ended", "ended"),
    ),
    "timeout before the start": History(
        [TimedOut(1), Prepared()],
        [],
        "the job was still running after 1 seconds (--timeout)",
        110,
        ("not started", "not started", "not started"),
    ),
    "Ctrl-C once": History(
        [*RUN, Interrupted("SIGINT"), *exits(0, 1, 2)],
        [Start(), ALL],
        "ended by SIGINT",
        1,
        ("ended", "ended", "ended"),
    ),
    "Ctrl-C twice": History(
        [*RUN, Interrupted("SIGINT"), Interrupted("SIGINT"), *exits(0, 1, 2)],
        [Start(), ALL, NOW],
        "ended by SIGINT",
        1,
        ("ended", "ended", "ended"),
    ),
    "Ctrl-C while a failure is being ended": History(
        [*RUN, *over(0, 3), Interrupted("SIGINT"), *over(1, None, SIGKILL), *over(2, None, SIGKILL)],
        [Start(), ALL, NOW],
        "rank 0 ended with exit code 3",
        3,
        VICTIMS,
    ),
    "Ctrl-C before the start": History(
        [Interrupted("SIGINT"), Prepared()],
        [],
        "ended by SIGINT",
        1,
        ("not started", "not started", "not started"),
    ),
    "a failure that need not end the job": History(
        [*RUN, *over(0, 3), *over(1, 4), *over(2)], [Start()], "rank 0 ended with exit code 3", 3, abort=False
    ),
    "but a program that is missing ends it": History(
        [*RUN, MISSING, *over(1, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "the program 'x' was not found",
        127,
        ("not started", "ended", "ended"),
        abort=False,
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    history = HISTORIES[name]
    state = JobState(jobmap(0, 0, 1), abort_on_failure=history.abort)
    actions = [action for event in history.events for action in state.on(event)]
    assert actions == history.actions
    assert [type(action) for action in actions] == [type(action) for action in history.actions]
    assert state.finished == history.finished
    failure = state.failure
    assert (failure.what if failure else None, failure.code if failure else 0) == (history.what, history.code)
    if history.finished:
        assert tuple(status.reason for status in state.statuses()) == history.reasons


def test_the_cause_names_rank_and_host() -> None:
    state = JobState(jobmap(0, 0, 1))
    for event in [*RUN, *over(2, 5)]:
        state.on(event)
    assert state.failure and (state.failure.rank, state.failure.host) == (2, "n1")
    for event in [*over(0, None, SIGTERM), *over(1)]:
        state.on(event)
    assert [(s.rank, s.host, s.pid, s.code, s.signal, s.status) for s in state.statuses()] == [
        (0, "n0", 100, None, SIGTERM, 143),
        (1, "n0", 101, 0, None, 0),
        (2, "n1", 102, 5, None, 5),
    ]


def test_the_service_is_where_rank_0_is() -> None:
    """Rank 0 may be on the second node; the scheduler is lost with that one, and with no other."""
    state = JobState(jobmap(1, 0))
    for event in [Prepared(), Started(0, 1), Started(1, 2), Started(SERVICE, 3, 1), *over(0, node=1), *over(1, node=0)]:
        state.on(event)
    assert not state.finished
    state.on(LinkEnded(1))
    assert state.finished


def test_merged_output_has_one_stream() -> None:
    state = JobState(jobmap(0), streams=1)
    for event in [Prepared(), Started(0, 1), Exited(0, 0, 0, None)]:
        state.on(event)
    assert not state.finished
    state.on(StreamEnded(0))
    assert state.finished


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_order_ends_with_one_end(data: st.DataObject) -> None:
    """Exits and ends of streams in any order: finished at the last event and not before, the first bad exit decides."""
    size = data.draw(st.integers(1, 5))
    codes = [data.draw(st.sampled_from([0, 0, 0, 1, 7])) for _ in range(size)]
    events: list[Any] = [Exited(rank, 0, code, None) for rank, code in enumerate(codes)]
    events += [StreamEnded(rank) for rank in range(size) for _ in range(2)]
    events = data.draw(st.permutations(events))
    state = JobState(jobmap(*[0] * size))
    actions = state.on(Prepared())
    for event in events:
        assert not state.finished
        actions += state.on(event)
    assert state.finished
    bad = [event.code for event in events if isinstance(event, Exited) and event.code]
    assert [action for action in actions if isinstance(action, End)] == [End((0,))] * bool(bad)
    assert (state.failure.code if state.failure else 0) == (bad[0] if bad else 0)


@pytest.mark.parametrize(
    ("number", "name"),
    [(11, "SIGSEGV (segmentation fault)"), (9, "SIGKILL (killed)"), (40, "signal 40 (real-time signal 6)")],
)
def test_names_of_signals(number: int, name: str) -> None:
    assert signal_name(number) == name
