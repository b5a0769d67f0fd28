"""The next attempt after a failed one: its hosts, and its number of ranks."""

from __future__ import annotations

import pytest

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.datamodel.request import AppContext, Policy, Request, ServicePolicy
from mslaunch.launcher.job.restart_policy import most_restarts
from mslaunch.launcher.recovery.restart_candidates import (
    Candidate,
    PreviousAttempt,
    candidates,
    may_shrink,
    smaller_candidates,
)

APP = AppContext(("x",))
GROUP = Request((APP,), restart="group")


def nodes(text: str, spare: bool = False) -> tuple[Node, ...]:
    words = (word.partition(":") for word in text.split())
    return tuple(Node(name, int(slots), "hf", spare=spare) for name, _, slots in words)


def before(here: str, spares: str = "", size: int = 4) -> PreviousAttempt:
    return PreviousAttempt(1, Allocation(nodes(here), True, spares=nodes(spares, spare=True)), size)


def offered(request: Request, past: PreviousAttempt, *gone: str, counts: tuple[int, ...] = (4,)) -> list[Candidate]:
    """The choices in order: all ranks first, then fewer, if that is allowed."""
    whole = list(candidates(request, counts, past, gone))
    there = [node for node in (*past.allocation.nodes, *past.allocation.spares) if node.name not in gone]
    room = sum(node.slots or 0 for node in there)
    return whole + (list(smaller_candidates(request, counts, past, gone, room)) if may_shrink(request) else [])


def said(choice: Candidate) -> tuple[str, int, str]:
    return " ".join(f"{node.name}:{node.slots}" for node in choice.allocation.nodes), choice.size, choice.changed


@pytest.mark.parametrize(
    ("request_", "most"),
    [
        (Request((APP,)), 0),
        (Request((APP,), max_restarts=5), 0),
        (Request((APP,), max_restarts=5, restart="rank"), 0),
        (GROUP, 3),
        (GROUP._replace(max_restarts=1), 1),
    ],
)
def test_the_limit_of_restarts(request_: Request, most: int) -> None:
    assert most_restarts(request_) == most


def test_without_a_lost_host_nothing_changes() -> None:
    first, *others = offered(GROUP, before("a:2 b:2"))
    assert said(first) == ("a:2 b:2", 4, "")
    assert first.request.apps[0].np == 4, "as many as there were"
    assert first.request.stdin == "none"
    assert not others


def test_a_spare_takes_the_place_of_a_lost_host() -> None:
    first, second, *_ = offered(GROUP, before("a:2 b:2 c:2", "x:8 y:2", 6), "a", counts=(6,))
    assert said(first) == ("x:2 b:2 c:2", 6, "x takes the place of a")
    assert said(second) == ("x:8 b:2 c:2", 6, "x takes the place of a")


def test_more_spares_if_one_is_too_small() -> None:
    rows = [said(choice) for choice in offered(GROUP, before("a:2 b:2", "x:1 y:1 z:1"), "b")]
    assert ("a:2 x:1 y:1", 4, "x takes the place of b, y comes in") in rows
    assert rows[-1] == ("a:2 x:1 y:1 z:1", 4, "x takes the place of b, y,z come in")


def test_a_spare_that_fits_is_better_than_the_first() -> None:
    """A spare without a stated number of slots fits."""
    past = before("a:2 b:3 c:1", "x:1 y:2 z:3", 6)
    assert said(offered(GROUP, past, "a", counts=(6,))[0]) == ("y:2 b:3 c:1", 6, "y takes the place of a")
    both = offered(GROUP, past, "a", "b", counts=(6,))[0]
    assert said(both) == ("y:2 z:3 c:1", 6, "y takes the place of a, z takes the place of b")
    none = offered(GROUP, past, "b", "z", counts=(6,))[0]
    assert said(none) == ("a:2 x:1 c:1", 6, "x takes the place of b")
    unsaid = past._replace(allocation=past.allocation._replace(spares=(Node("w", None, "hf", spare=True),)))
    assert said(offered(GROUP, unsaid, "b", counts=(6,))[0]) == ("a:2 w:3 c:1", 6, "w takes the place of b")


def test_fewer_ranks_with_spares_and_without() -> None:
    """A spare that is too small for the ranks required on each host is not used."""
    rows = [said(choice)[:2] for choice in offered(GROUP._replace(min_ranks=2), before("a:2 b:2", "x:1"), "a")]
    assert rows == [("x:1 b:2", 4), ("x:1 b:2", 4), ("x:1 b:2", 3), ("b:2", 3), ("x:1 b:2", 2), ("b:2", 2)]


def test_lost_spares_do_not_count() -> None:
    first = offered(GROUP, before("a:2 b:2", "x:2 y:2"), "b", "x")[0]
    assert said(first) == ("a:2 y:2", 4, "y takes the place of b")
    assert [node.name for node in first.allocation.spares] == ["x", "b"]


def test_without_a_spare_others_may_have_room() -> None:
    """Free slots elsewhere may suffice; the mapper decides."""
    assert [said(choice) for choice in offered(GROUP, before("a:2 b:2 c:2"), "b")] == [("a:2 c:2", 4, "b is left out")]


def test_two_hosts_are_lost_and_there_is_one_spare() -> None:
    rows = [said(choice) for choice in offered(GROUP, before("a:2 b:2 c:2", "x:4", 6), "a", "b", counts=(6,))]
    assert rows == [
        ("x:2 c:2", 6, "x takes the place of a, b is left out"),
        ("x:4 c:2", 6, "x takes the place of a, b is left out"),
    ]


def test_fewer_ranks_as_many_as_fit_first() -> None:
    rows = [said(choice) for choice in offered(GROUP._replace(min_ranks=1), before("a:3 b:1"), "b")]
    assert rows[1:] == [
        ("a:3", 3, "b is left out, 3 ranks instead of 4"),
        ("a:3", 2, "b is left out, 2 ranks instead of 4"),
        ("a:3", 1, "b is left out, 1 rank instead of 4"),
    ]


def test_never_fewer_than_the_minimum() -> None:
    sizes = [choice.size for choice in offered(GROUP._replace(min_ranks=3), before("a:2 b:2"), "b")]
    assert sizes == [4], "two slots are not three"
    over = GROUP._replace(min_ranks=3, policy=Policy(oversubscribe=True))
    assert [choice.size for choice in offered(over, before("a:2 b:2"), "b")] == [4, 3]


def test_a_job_of_several_programs_does_not_shrink() -> None:
    two = GROUP._replace(apps=(APP, APP), min_ranks=1)
    (choice,) = offered(two, before("a:2 b:2"), "b", counts=(1, 3))
    assert choice.size == 4
    assert [app.np for app in choice.request.apps] == [1, 3]


def test_a_group_that_has_shrunk_may_grow_again() -> None:
    """The host that was left out becomes a spare, and the full number is tried first."""
    past = before("a:2", "b:2", size=2)
    rows = [said(choice) for choice in offered(GROUP._replace(min_ranks=1), past)]
    assert rows[:2] == [("a:2", 4, "4 ranks instead of 2"), ("a:2 b:2", 4, "b comes in, 4 ranks instead of 2")]


@pytest.mark.parametrize(
    ("spares", "host", "words"),
    [
        ("x:2", "x", "x takes the place of b"),
        ("", "", "b is left out, the MindSpore scheduler moves to the host of rank 0"),
    ],
)
def test_the_scheduler_moves_from_a_lost_host(spares: str, host: str, words: str) -> None:
    asked = GROUP._replace(cluster=ServicePolicy("b", 8118))
    past = before("a:2 b:2", spares)._replace(service_host="b.org", service_node="b")
    first = offered(asked, past, "b")[0]
    assert (first.request.cluster, first.changed) == (ServicePolicy(host, 8118), words)
    (again,) = offered(asked, before("a:2 x:2", "b:2")._replace(service_host="x", service_node="x"))[:1]
    assert again.request.cluster.host == "x", "it stays, though another was named in the beginning"
    apart = past._replace(service_host="joe@c", service_node="c")
    assert offered(asked, apart, "b")[0].request.cluster.host == "joe@c"
    alone = offered(asked, apart, "c")[0]
    assert (alone.request.cluster.host, alone.changed) == ("", "the MindSpore scheduler moves to the host of rank 0")
