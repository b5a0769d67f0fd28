"""Control frames as records, there and back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.model import AppPlan, NodePlan, RankPlan, ServicePlan
from mslaunch.wire import messages
from mslaunch.wire.messages import Exit, Hello, Reserved

FEW = settings(max_examples=60, deadline=None)
WORDS = st.binary(max_size=8).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
TUPLES = st.lists(WORDS, max_size=3).map(tuple)
NUMBERS = st.integers(0, 1 << 20)
RANKS = st.lists(
    st.builds(RankPlan, NUMBERS, st.integers(0, 3), TUPLES, st.lists(st.integers(0, 99), max_size=3).map(tuple)),
    max_size=4,
    unique_by=lambda rank: rank.rank,
).map(tuple)
PLANS = st.builds(
    NodePlan,
    RANKS,
    st.lists(st.builds(AppPlan, TUPLES, WORDS, TUPLES), max_size=3).map(tuple),
    TUPLES,
    TUPLES,
    TUPLES,
    st.lists(st.builds(ServicePlan, WORDS, NUMBERS, WORDS, TUPLES), max_size=2).map(tuple),
    st.lists(NUMBERS, max_size=3).map(tuple),
    st.booleans(),
    st.sampled_from(["auto", "yes", "no"]),
    st.floats(0, 1000),
)


@FEW
@given(PLANS)
def test_a_plan(plan: NodePlan) -> None:
    again = messages.unpack_plan(messages.pack_plan(plan))
    assert again == plan
    assert [type(rank) for rank in again.ranks] == [RankPlan] * len(plan.ranks)
    assert type(again.merge) is bool


@FEW
@given(st.builds(Hello, WORDS, NUMBERS, NUMBERS, WORDS, TUPLES, WORDS))
def test_hello(hello: Hello) -> None:
    assert messages.unpack_hello(messages.pack_hello(hello)) == hello


@FEW
@given(st.builds(Reserved, st.lists(NUMBERS, max_size=3).map(tuple), NUMBERS, WORDS))
def test_reserved(reserved: Reserved) -> None:
    assert messages.unpack_reserved(messages.pack_reserved(reserved)) == reserved


@FEW
@given(st.builds(Exit, st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), WORDS, WORDS))
def test_exit(ended: Exit) -> None:
    again = messages.unpack_exit(messages.pack_exit(ended))
    assert again == ended
    assert (again.code is None, again.signal is None) == (ended.code is None, ended.signal is None)


@FEW
@given(st.lists(WORDS, max_size=3), NUMBERS, WORDS)
def test_probe_and_addresses(addresses: list[str], port: int, token: str) -> None:
    assert messages.unpack_probe(messages.pack_probe(addresses, port, token)) == (addresses, port, token)
    assert messages.unpack_addresses(messages.pack_addresses(addresses)) == addresses
