"""The participants of a meeting: who may take part, and the numbers of hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.launcher.peers.participants import Participant, natural, no_place, numbered, objection

FIRST = Participant("node9", 4, 2, 2, "job")
names = st.text("abn0123456789-.", min_size=1, max_size=8)


@given(st.lists(st.tuples(names, st.integers(1, 9)), min_size=1, max_size=9))
def test_every_host_gets_a_number_of_its_own_and_the_first_is_0(hosts: list[tuple[str, int]]) -> None:
    participants = [Participant(name, ranks, 1, 9, "job") for name, ranks in hosts]
    places = numbered(participants)
    assert sorted(places.nodes) == list(range(len(hosts))) and places.nodes[0] == 0
    assert [places.sizes[node] for node in places.nodes] == [ranks for _, ranks in hosts]


@given(st.permutations(["n1", "n2", "n10", "n10-2", "n010b", "x"]))
def test_hosts_have_the_same_numbers_in_whatever_order_they_come(order: list[str]) -> None:
    places = numbered([Participant(name, 1, 7, 7, "job") for name in ["head", *order]])
    found = dict(zip(["head", *order], places.nodes))
    assert found["head"] == 0 and found["n1"] < found["n2"] < found["n10"] < found["n10-2"]
    assert sorted(order, key=found.__getitem__) == sorted(order, key=natural)


@given(names, names)
def test_two_names_compare(one: str, other: str) -> None:
    """Numbers of any length and letters never meet in one comparison."""
    assert (natural(one) < natural(other)) in (True, False)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (FIRST._replace(host="n1"), ""),
        (FIRST._replace(host="n1", ranks=9), ""),
        (FIRST._replace(host="n1", run_id="k"), "another job meets there: its --rdzv-id is 'job', and n1 has 'k'"),
        (FIRST._replace(host="n1", most=3), "--nnodes is 2 on node9, and 2:3 on n1"),
        (FIRST._replace(host="n1", restarts=3), "--max-restarts is 0 on node9, and 3 on n1"),
        (FIRST._replace(host="n1", number=1), "hosts have numbers for n1 (--node-rank), and none for node9 (c10d)"),
    ],
)
def test_who_has_another_line_is_told_why(new: Participant, why: str) -> None:
    assert objection(FIRST, new) == why


def test_there_are_as_many_places_as_nnodes_says() -> None:
    assert not no_place([FIRST], FIRST._replace(host="n1"))
    assert "2 hosts have come already" in no_place([FIRST, FIRST], FIRST._replace(host="n1"))


def test_a_number_is_given_once() -> None:
    first, other = FIRST._replace(number=0, most=3), FIRST._replace(host="n1", number=0)
    assert no_place([first], other) == "--node-rank is 0 on node9 and on n1"
    assert not no_place([first], other._replace(number=2))


@given(st.permutations(range(1, 6)))
def test_numbers_that_were_given_stay(order: list[int]) -> None:
    hosts = [FIRST._replace(host=f"n{9 - number}", ranks=number + 1, number=number) for number in [0, *order]]
    places = numbered(hosts)
    assert places.nodes == (0, *order) and places.sizes == (1, 2, 3, 4, 5, 6)
