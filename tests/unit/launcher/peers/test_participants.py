"""The participants of a meeting: who may take part, and the numbers of hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.launcher.peers.participants import Participant, natural, numbered, objection

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
    ("new", "here", "why"),
    [
        (FIRST._replace(host="n1"), 1, ""),
        (FIRST._replace(host="n1", ranks=9), 1, ""),
        (FIRST._replace(host="n1", run_id="k"), 1, "another job meets there: its --rdzv-id is 'job', and n1 has 'k'"),
        (FIRST._replace(host="n1", most=3), 1, "--nnodes is 2 on node9, and 2:3 on n1"),
        (FIRST._replace(host="n1"), 2, "2 hosts have come already, as many as --nnodes says"),
    ],
)
def test_who_cannot_take_part_is_told_why(new: Participant, here: int, why: str) -> None:
    assert objection(FIRST, new, here) == why
