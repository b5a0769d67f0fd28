"""Spares replace hosts of an allocation: everything that refers to nodes by number still means the same ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Allocation, Node, RankLine
from mslaunch.plan.hosts.choose_spares import exchange


def nodes(text: str, spare: bool = False) -> tuple[Node, ...]:
    """`a:2 b` as nodes."""
    words = (word.partition(":") for word in text.split())
    return tuple(Node(name, int(slots) if slots else None, "hf", spare=spare) for name, _, slots in words)


def said(found: tuple[Node, ...]) -> str:
    return " ".join(f"{node.name}:{node.slots}" for node in found)


FOUR = Allocation(nodes("a:4 b:4 c:4"), True, spares=nodes("x:8 y:2 z", spare=True))


def test_a_spare_takes_the_position_of_the_lost_host() -> None:
    made = exchange(FOUR, ["b"], FOUR.spares[:1])
    assert said(made.nodes) == "a:4 x:4 c:4"
    assert said(made.spares) == "y:2 z:None b:4"
    assert all(node.spare for node in made.spares) and not any(node.spare for node in made.nodes)


def test_a_spare_brings_all_its_slots() -> None:
    assert said(exchange(FOUR, ["b"], FOUR.spares[:1], whole=True).nodes) == "a:4 x:8 c:4"


def test_a_spare_without_slots_has_those_of_the_host_that_it_replaces() -> None:
    assert said(exchange(FOUR, ["b"], FOUR.spares[2:]).nodes) == "a:4 z:4 c:4"
    assert said(exchange(FOUR, ["b"], FOUR.spares[2:], whole=True).nodes) == "a:4 z:4 c:4"


def test_more_spares_than_lost_hosts_all_join() -> None:
    assert said(exchange(FOUR, ["a"], FOUR.spares[1:]).nodes) == "y:2 b:4 c:4 z:None"


def test_without_a_spare_the_host_is_removed() -> None:
    made = exchange(FOUR, ["a", "c"], [])
    assert (said(made.nodes), said(made.spares)) == ("b:4", "x:8 y:2 z:None a:4 c:4")


def test_a_replaced_host_may_return() -> None:
    without = exchange(FOUR, ["b"], FOUR.spares[:1])
    assert said(exchange(without, ["x"], without.spares[2:]).nodes) == "a:4 b:4 c:4"


def test_references_by_node_number_are_adjusted() -> None:
    before = FOUR._replace(
        apps=((0, 1), (1, 2)),
        sequences=((0, 1, 1, 2),),
        ranks=tuple(RankLine(rank, node, "0", node=at) for rank, (at, node) in enumerate(enumerate("abc"))),
    )
    placed = exchange(before, ["b"], FOUR.spares[:1])
    assert (placed.apps, placed.sequences) == (before.apps, before.sequences)
    assert [line.node for line in placed.ranks] == [0, 1, 2]
    left = exchange(before, ["b"], [])
    assert left.apps == ((0,), (1,)) and left.sequences == ((0, 1),)
    assert [(line.rank, line.node) for line in left.ranks] == [(0, 0), (1, 1)], "numbered anew"
    more = exchange(before, ["b"], FOUR.spares[:2])
    assert more.apps == ((0, 1, 3), (1, 2, 3)), "a host more is everybody's"


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)


@settings(max_examples=200, deadline=None)
@given(NAMES, st.lists(st.sampled_from("uvwxyz"), unique=True), st.data())
def test_no_host_is_lost_or_doubled(here: list[str], ready: list[str], data: st.DataObject) -> None:
    before = Allocation(nodes(" ".join(f"{name}:2" for name in here)), True, spares=nodes(" ".join(ready), spare=True))
    gone = data.draw(st.lists(st.sampled_from(here), unique=True))
    comes = before.spares[: data.draw(st.integers(0, len(ready)))]
    made = exchange(before, gone, comes)
    names = [node.name for node in made.nodes]
    assert sorted([*names, *(node.name for node in made.spares)]) == sorted([*here, *ready])
    assert set(names) == set(here) - set(gone) | {node.name for node in comes}
    kept = [name for name in names if name in here]
    assert kept == [name for name in here if name not in gone], "the order is kept"
