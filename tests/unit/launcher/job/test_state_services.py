"""The state of services: started before the ranks, needed by them, restarted, lost."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import pytest
from histories import Restart, exited, failure_of, make_state, restarts_of, tell
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.errors import LinkError
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.job.events import (
    End,
    Idle,
    Interrupted,
    LinkEnded,
    Prepared,
    Serve,
    Serves,
    Start,
    Started,
    StreamEnded,
    TimedOut,
    TimerFired,
)

SIGKILL, SIGTERM = int(signal.SIGKILL), int(signal.SIGTERM)
SERVER = SERVICE - 1
KILLED = "was ended by SIGKILL (killed)"


def jobmap(*nodes: int, hosts: int = 0, first: int = 0) -> JobMap:
    """`nodes`: the node of each rank; `hosts`: their number, of which the last may have no ranks."""
    names = tuple(Node(f"n{number}", 8, "-H") for number in range(hosts or max(nodes) + 1))
    rows = tuple(Placement(first + at, 0, node, nodes[:at].count(node)) for at, node in enumerate(nodes))
    return JobMap(names, rows, 8 * len(names))


def over(number: int, code: int | None = 0, signum: int | None = None, node: int = 0) -> list[Any]:
    return [exited(number, node, code, signum), StreamEnded(number), StreamEnded(number)]


ONE, BOTH = ((SERVICE, 0),), ((SERVICE, 0), (SERVER, 0))
LATE = TimerFired("serve")
SERVING = [Prepared(BOTH), Started(SERVICE, 90), Started(SERVER, 91)]
READY = [*SERVING, Serves(SERVER), Serves(SERVICE)]
RUN = [*READY, Started(0, 100), Started(1, 101)]
BEGUN = [Serve((0,)), Start()]
ALL = End((0,))
BAD_PORT = exited(SERVICE, 0, None, None, "port 8118 is taken", "name another")
DEAD = [*over(0, None, SIGTERM), *over(1, None, SIGTERM)]
SERVER_DEAD = over(SERVER, None, SIGTERM)


class History(NamedTuple):
    events: list[Any]
    actions: list[Any]
    what: str | None = None
    rank: int | None = None
    finished: bool = True
    restart: str = ""
    limit: int = 0
    restartable: bool = False


HISTORIES = {
    "ranks wait for all services": History(SERVING, [Serve((0,))], finished=False),
    "and for the last of them": History([*SERVING, Serves(SERVICE)], [Serve((0,))], finished=False),
    "then they are started": History(RUN, BEGUN, finished=False),
    "a service that waits for a first connection is ready, and need not run": History(
        [Prepared(ONE), Serves(SERVICE), *(e for rank in (0, 1) for e in (Started(rank, 9), *over(rank)))], BEGUN
    ),
    "but not for ever": History([*SERVING, LATE], BEGUN, finished=False),
    "once is enough": History([*SERVING, LATE, Serves(SERVICE), Serves(SERVER)], BEGUN,
                              finished=False),
    "all are ended with the last rank, however they end": History(
        [*RUN, *over(0), *over(1), *over(SERVICE, 1), *over(SERVER, None, SIGKILL)], [*BEGUN, ALL]
    ),
    "and are waited for": History([*RUN, *over(0), *over(1), *over(SERVICE, 1)], [*BEGUN, ALL], finished=False),
    "the scheduler fails before it listens: no rank starts": History(
        [*SERVING, Serves(SERVER), *over(SERVICE, 1), Serves(SERVICE), *SERVER_DEAD],
        [Serve((0,)), ALL],
        "the MindSpore scheduler ended with exit code 1 before it listened",
        SERVICE,
    ),
    "it is waited for as well": History(
        [*SERVING, *over(SERVICE, 1)],
        [Serve((0,)), ALL],
        "the MindSpore scheduler ended with exit code 1 before it listened",
        SERVICE,
        finished=False,
    ),
    "a good end is none, before there are ranks": History(
        [*SERVING, *over(SERVER, 0), *over(SERVICE, None, SIGTERM)],
        [Serve((0,)), ALL],
        "parameter server 0 ended with exit code 0 before the ranks were started",
        SERVER,
    ),
    "the scheduler cannot start": History([Prepared(ONE), BAD_PORT], [Serve((0,)), ALL], "port 8118 is taken"),
    "group: nor is it tried again": History(
        [Prepared(ONE), BAD_PORT], [Serve((0,)), ALL], "port 8118 is taken", restart="group", limit=3
    ),
    "no port can be held": History([BAD_PORT, Prepared(ONE)], [], "port 8118 is taken"),
    "Ctrl-C while services start": History(
        [*SERVING, Interrupted("SIGINT"), *over(SERVICE, None, SIGTERM), *SERVER_DEAD],
        [Serve((0,)), ALL],
        "ended by SIGINT",
    ),
    "twice": History(
        [*SERVING, Interrupted("SIGINT"), Interrupted("SIGINT"), *over(SERVICE, None, SIGKILL), *SERVER_DEAD],
        [Serve((0,)), ALL, End((0,), now=True)],
        "ended by SIGINT",
    ),
    "--timeout while services start": History(
        [*SERVING, TimedOut(1, traces=True), *over(SERVICE, None, SIGTERM), *SERVER_DEAD],
        [Serve((0,)), ALL],
        "the job was still running after 1 second (--timeout)",
    ),
    "their host goes while they start": History(
        [*SERVING, LinkEnded(0)], [Serve((0,)), End(())], "the agent ended before the ranks were started"
    ),
    "a service may end well while ranks run": History(
        [*RUN, *over(SERVER), *over(SERVICE), *over(0), *over(1)], BEGUN
    ),
    "and start again by itself": History(
        [*RUN, *over(SERVICE), Started(SERVICE, 92), *over(SERVER), *over(0), *over(1), *over(SERVICE)], [*BEGUN, ALL]
    ),
    "a server dies": History(
        [*RUN, *over(SERVER, None, SIGKILL), *DEAD, *over(SERVICE, 1)],
        [*BEGUN, ALL, ALL],
        f"parameter server 0 {KILLED} while ranks were running",
        SERVER,
    ),
    "and nobody starts it again, for it has forgotten": History(
        [*RUN, *over(SERVER, None, SIGKILL), *DEAD, *over(SERVICE, 1)],
        [*BEGUN, ALL, ALL],
        f"parameter server 0 {KILLED} while ranks were running",
        SERVER,
        limit=2,
    ),
    "group: but with all ranks": History(
        [*RUN, *over(SERVER, None, SIGKILL), *DEAD, *over(SERVICE, 1)],
        [*BEGUN, ALL, ALL],
        f"parameter server 0 {KILLED} while ranks were running",
        SERVER,
        restart="group",
        limit=2,
        restartable=True,
    ),
    "the scheduler dies alone": History(
        [*RUN, *over(SERVICE, None, SIGKILL), *DEAD, *SERVER_DEAD],
        [*BEGUN, ALL, ALL],
        f"the MindSpore scheduler {KILLED} while ranks were running",
        SERVICE,
        restart="none",
        limit=3,
    ),
    **{
        f"{restart or 'nobody said'}: it is started again": History(
            [*RUN, *over(SERVICE, None, SIGKILL), Started(SERVICE, 92), *over(0), *over(1), *over(SERVICE, 1),
             *over(SERVER)],
            [*BEGUN, Restart(SERVICE, 0, KILLED, 1, 2), ALL],
            restart=restart,
            limit=2,
        )
        for restart in ("", "rank", "group")
    },
    "as often as is allowed": History(
        [*RUN, *over(SERVICE, None, SIGKILL), Started(SERVICE, 92), *over(SERVICE, 1), *DEAD, *SERVER_DEAD],
        [*BEGUN, Restart(SERVICE, 0, KILLED, 1, 1), ALL, ALL],
        "the MindSpore scheduler, started again, ended with exit code 1 while ranks were running",
        SERVICE,
        restart="group",
        limit=1,
        restartable=True,
    ),
    "it cannot be started again": History(
        [*RUN, *over(SERVICE, 1), BAD_PORT, *DEAD, *SERVER_DEAD],
        [*BEGUN, Restart(SERVICE, 0, "ended with exit code 1", 1, 3), ALL, ALL],
        "the MindSpore scheduler could not be started again: port 8118 is taken",
        limit=3,
    ),
    "ranks were done before they had found it again": History(
        [*RUN, *over(SERVICE, 1), Started(SERVICE, 92), exited(SERVICE, 0, None, None, "some cannot end"),
         *over(SERVICE)[1:], *DEAD, *SERVER_DEAD],
        [*BEGUN, Restart(SERVICE, 0, "ended with exit code 1", 1, 3), ALL, ALL],
        "the MindSpore scheduler could not be started again: some cannot end",
        SERVICE,
        restart="group",
        limit=3,
        restartable=True,
    ),
    "the ranks end before it is back": History(
        [*RUN, *over(SERVICE, 1), *over(0), *over(1), *over(SERVER), exited(SERVICE, 0, None, None, "being ended")],
        [*BEGUN, Restart(SERVICE, 0, "ended with exit code 1", 1, 3), ALL],
        limit=3,
    ),
    "not while the job is being ended": History(
        [*RUN, *over(0, 3), *over(SERVICE, None, SIGKILL), *over(1, None, SIGTERM), *over(SERVER)],
        [*BEGUN, ALL, ALL],
        "rank 0 ended with exit code 3",
        0,
        restart="group",
        limit=3,
        restartable=True,
    ),
    "group: whoever fails, all end": History(
        [*RUN, *over(0, 3), *over(1, None, SIGTERM), *over(SERVICE, 1), *over(SERVER)],
        [*BEGUN, ALL, ALL],
        "rank 0 ended with exit code 3",
        0,
        restart="group",
        restartable=True,
    ),
    "group: but not after Ctrl-C": History(
        [*RUN, *over(0, 3), Interrupted("SIGINT"), *over(1, None, SIGTERM), *over(SERVICE, 1), *over(SERVER)],
        [*BEGUN, ALL, End((0,), now=True), ALL],
        "rank 0 ended with exit code 3",
        0,
        restart="group",
    ),
    "group: Ctrl-C is no failure to recover from": History(
        [*RUN, Interrupted("SIGINT"), *DEAD, *over(SERVICE, 1), *over(SERVER)],
        [*BEGUN, ALL, ALL],
        "ended by SIGINT",
        restart="group",
    ),
    "group: nor is --timeout": History(
        [*RUN, TimedOut(5), *DEAD, *over(SERVICE, 1), *over(SERVER)],
        [*BEGUN, ALL, ALL],
        "the job was still running after 5 seconds (--timeout)",
        restart="group",
    ),
    "group: nor a program that there is not": History(
        [Prepared(), *(exited(rank, 0, 127, None, "the program 'x' was not found") for rank in (0, 1))],
        [Start(), ALL],
        "the program 'x' was not found",
        restart="group",
    ),
    "group: a lost host is": History(
        [*RUN, LinkEnded(0)], [*BEGUN, End(())], "the host was lost while ranks ran there", restart="group",
        restartable=True,
    ),
    "group: all went well": History([*RUN, *over(0), *over(1), *over(SERVICE), *over(SERVER)], [*BEGUN, ALL],
                                    restart="group", limit=2),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_histories_of_services(name: str) -> None:
    history = HISTORIES[name]
    state = make_state(jobmap(0, 0), abort_on_failure=False, max_restarts=history.limit, restart=history.restart)
    if not (history.limit or history.restart):
        state = make_state(jobmap(0, 0))
    actions = tell(state, *history.events)
    assert actions == history.actions
    assert [type(action) for action in actions] == [type(action) for action in history.actions]
    assert state.finished == history.finished
    failure = failure_of(state) if state.failure else None
    assert (failure.what if failure else None, failure.rank if failure else None) == (history.what, history.rank)
    assert state.restartable == history.restartable


def test_ranks_of_other_launchers_may_need_it_longer() -> None:
    state = make_state(jobmap(0), shared=True)
    tell(state, Prepared(ONE), Started(SERVICE, 90), Serves(SERVICE), Started(0, 100))
    assert tell(state, *over(0))[0] == Idle((0,)) and not state.finished
    assert tell(state, Interrupted("SIGINT")) == [End((0,))]  # Ctrl-C ends the wait
    tell(state, *over(SERVICE, None, SIGTERM))
    assert state.finished


def test_a_share_that_fails_does_not_wait_for_others() -> None:
    state = make_state(jobmap(0), shared=True)
    tell(state, Prepared(ONE), Started(SERVICE, 90), Serves(SERVICE), Started(0, 100))
    assert set(tell(state, *over(0, 3))) == {End((0,))}


def test_services_are_in_the_outcome() -> None:
    state = make_state(jobmap(0, 0))
    tell(state, *RUN, *over(0), *over(1), *SERVER_DEAD, *over(SERVICE))
    found = [(one.rank, one.host, one.pid, one.code, one.signal, one.reason) for one in state.table.service_statuses()]
    assert found == [(SERVICE, "n0", 90, 0, None, ""), (SERVER, "n0", 91, None, SIGTERM, "ended")]
    assert [one.rank for one in state.table.statuses()] == [0, 1]


def test_a_refusal_says_what_to_do() -> None:
    for events in ([BAD_PORT], [Prepared(ONE), BAD_PORT]):
        state = make_state(jobmap(0, 0))
        tell(state, *events)
        assert failure_of(state) == ("port 8118 is taken", "n0", None, 1, ("name another",))
        assert {status.reason for status in state.table.statuses()} == {"not started"}


def test_a_host_without_ranks_is_needed_as_long_as_ranks_run() -> None:
    apart = [Prepared(((SERVICE, 2),)), Started(SERVICE, 9, 2), Serves(SERVICE), Started(0, 1), Started(1, 2, 1)]
    state = make_state(jobmap(0, 1, hosts=3), restart="group")
    gone = LinkError("no route", "n2")
    assert tell(state, *apart, LinkEnded(2, gone)) == [Serve((2,)), Start(), End((0, 1))]
    what = "the MindSpore scheduler was lost with the host while ranks were running"
    assert failure_of(state) == (what, "n2", None, 205, ("no route",))
    assert state.restartable and state.table.lost_hosts == ("n2",)
    assert tell(state, *over(0, None, SIGTERM), *over(1, None, SIGTERM, 1)) == [] and state.finished
    state = make_state(jobmap(0, 1, hosts=3))
    assert tell(state, *apart, *over(0), *over(1, node=1), LinkEnded(2)) == [Serve((2,)), Start(), End((0, 1, 2))]
    assert state.finished and state.failure is None


def test_a_host_with_an_on_demand_service_is_needed_too() -> None:
    state = make_state(jobmap(0, hosts=2))
    assert tell(state, Prepared(((SERVICE, 1),)), Serves(SERVICE), Started(0, 1), LinkEnded(1))[-1] == End((0,))
    assert failure_of(state).host == "n1"


def test_several_services_go_with_their_host() -> None:
    places = tuple((number, 1) for number in (SERVER, SERVICE, SERVER - 1))
    state = make_state(jobmap(0, hosts=2))
    tell(state, Prepared(places), *(Started(number, 9, 1) for number, _ in places))
    tell(state, *(Serves(number) for number, _ in places), Started(0, 1), *over(SERVER, node=1), LinkEnded(1))
    assert failure_of(state).what == (
        "the MindSpore scheduler and parameter server 1 were lost with the host while ranks were running"
    )


def test_two_lost_hosts_are_both_replaced() -> None:
    """The second is lost after the first has ended the job."""
    state = make_state(jobmap(0, 1, 2), restart="group")
    tell(state, Prepared(), *(Started(rank, 9, rank) for rank in range(3)), LinkEnded(1), LinkEnded(2))
    assert failure_of(state).host == "n1"
    assert state.restartable and state.table.lost_hosts == ("n1", "n2")
    tell(state, *over(0, None, SIGTERM))
    assert state.finished


def test_a_host_lost_before_ranks_run_causes_another_attempt() -> None:
    state = make_state(jobmap(0, 1), restart="group")
    assert tell(state, LinkEnded(1), Prepared(ONE)) == []
    assert state.finished and state.restartable and state.table.lost_hosts == ("n1",)


def test_restarts_are_reported() -> None:
    state = make_state(jobmap(0, 0), max_restarts=3)
    killed, three = (None, SIGKILL), (3, None)
    tell(state, *RUN, *over(SERVICE, *killed), Started(SERVICE, 92), *over(1, *killed), Started(1, 93))
    for how in (killed, three):
        tell(state, *over(0, *how), Started(0, 94))
    assert restarts_of(state) == (
        f"the MindSpore scheduler on n0, which {KILLED}",
        f"rank 0 on n0, which {KILLED} and ended with exit code 3, 2 times",
        f"rank 1 on n0, which {KILLED}",
    )
    tell(state, *over(0), *over(1), *over(SERVICE), *over(SERVER))
    assert state.finished and state.failure is None


def test_a_restart_that_did_not_happen_is_not_reported() -> None:
    state = make_state(jobmap(0, 0), max_restarts=3)
    tell(state, *RUN, *over(0, 3), *over(1, 3), Started(1, 102), *over(1, 4), Interrupted("SIGINT"))
    tell(state, *(exited(rank, 0, 1, None, "the job is being ended") for rank in (0, 1)))
    assert restarts_of(state) == ("rank 1 on n0, which ended with exit code 3 and ended with exit code 4",)


def test_reasons_of_many_restarts_are_shortened() -> None:
    state = make_state(jobmap(0), max_restarts=1000)
    tell(state, Prepared(), Started(0, 9))
    for code in range(1, 100):
        tell(state, *over(0, code), Started(0, 9))
    assert restarts_of(state)[0].endswith(
        "which ended with exit code 1 and ended with exit code 2 and ended with exit code 3 and otherwise, 99 times"
    )


def test_all_started_needs_one_start_of_each_rank() -> None:
    state = make_state(jobmap(0, 0), max_restarts=1)
    tell(state, Prepared(), Started(0, 9), *over(0, 3))
    assert not state.table.all_started
    tell(state, Started(1, 10))
    assert state.table.all_started, "one of them is just being started again"
    tell(state, Started(0, 11))
    assert state.table.all_started


def test_the_first_rank_may_have_another_number() -> None:
    """Other launchers start the ranks before it."""
    state = make_state(jobmap(0, 1, first=4))
    assert (state.table.first, sorted(state.table.ranks), state.table.ranks[5].node) == (4, [4, 5], 1)
    tell(state, Prepared(), Started(4, 9), Started(5, 9, 1), exited(5, 1, 3, None))
    assert (failure_of(state).what, failure_of(state).rank) == (
        "rank 5 ended with exit code 3",
        5,
    )
    assert [status.rank for status in state.table.statuses()] == [4, 5]


@pytest.mark.parametrize(
    ("number", "text"), [(SERVICE, "the MindSpore scheduler"), (-3, "parameter server 0"), (-10, "parameter server 7")]
)
def test_services_have_titles(number: int, text: str) -> None:
    assert service_info(number).title == text


class Process:
    """A service and its agent, as the state sees them."""

    def __init__(self, number: int, codes: list[int], on_demand: bool) -> None:
        self.number = number
        self.codes = codes
        self.coming: list[Any] = []
        self.on_demand = on_demand
        self.runs = False

    def order(self, first: bool) -> None:
        """A plan, or a restart."""
        ready = [Serves(self.number)] if first else []
        self.coming = ready if self.on_demand and first else [Started(self.number, 7), *ready, *self.end()]

    def end(self) -> list[Any]:
        code = self.codes.pop() if self.codes else None
        return over(self.number, code, None if code is not None else SIGTERM)

    def next(self) -> Any:
        event = self.coming.pop(0)
        self.runs = self.runs or isinstance(event, Started)
        return event


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_order_comes_to_an_end(data: st.DataObject) -> None:
    """Services and ranks start, fail and are lost in any order: ranks never start before the services are ready.

    Nothing starts after the end, and the launch ends with the last process.
    """
    numbers = data.draw(st.sampled_from([[SERVICE], [SERVER, SERVICE], [SERVICE, SERVER, SERVER - 1]]))
    codes = st.lists(st.sampled_from([0, 0, 1, 7]), max_size=3)
    services = {number: Process(number, data.draw(codes), data.draw(st.booleans())) for number in numbers}
    ranks = {rank: [Started(rank, 9), *over(rank, data.draw(st.sampled_from([0, 0, 5])))] for rank in range(2)}
    coming: dict[int, list[Any]] = {}
    restart = data.draw(st.sampled_from(["", "rank", "group", "none"]))
    limit = data.draw(st.integers(0, 2))
    moment = data.draw(st.integers(0, 30))  # of Ctrl-C
    state = make_state(jobmap(0, 0), max_restarts=limit, restart=restart)
    actions = tell(state, Prepared(tuple((number, 0) for number in numbers)))
    started = ended = False
    for step in range(1000):
        for action in actions:
            if isinstance(action, Serve):
                for service in services.values():
                    service.order(first=True)
            elif isinstance(action, Start):
                assert not ended and not started
                started = True
                coming = ranks
            elif isinstance(action, Restart) and action.rank >= 0:
                assert not ended
                coming[action.rank] += [Started(action.rank, 9), *over(action.rank)]
            elif isinstance(action, Restart):
                assert action.rank == SERVICE and not ended
                services[SERVICE].coming += [Started(SERVICE, 8), *services[SERVICE].end()]
            else:
                ended = True
        able = [service.next for service in services.values() if service.coming]
        able += [lambda events=events: events.pop(0) for events in coming.values() if events]  # type: ignore[misc]
        if state.finished:
            break
        assert able
        actions = tell(state, Interrupted("SIGINT") if step == moment else data.draw(st.sampled_from(able))())
    assert state.finished
    assert not any(events for events in coming.values())
    assert not any(service.coming for service in services.values() if service.runs)
    if state.failure is None:
        assert state.code == 0 and started
    if state.restartable:
        assert restart == "group" and failure_of(state).rank is not None
