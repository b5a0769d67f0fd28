"""Records of control frames survive a round trip."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, ServicePlan, World
from mslaunch.datamodel.node_report import LEVELS, ExitStatus, Topology
from mslaunch.errors import WireError
from mslaunch.plan.folded_worlds import pack_runs
from mslaunch.protocol import control
from mslaunch.protocol.alike_plans import AlikePlans
from mslaunch.protocol.codec import pack
from mslaunch.protocol.control import Hello, Reserved

FEW = settings(max_examples=60, deadline=None)
WORDS = st.binary(max_size=8).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
TUPLES = st.lists(WORDS, max_size=3).map(tuple)
NUMBERS = st.integers(0, 1 << 20)
RANKS = st.lists(
    st.builds(
        RankPlan, NUMBERS, st.integers(0, 3), TUPLES, st.lists(st.integers(0, 99), max_size=3).map(tuple), TUPLES
    ),
    max_size=4,
    unique_by=lambda rank: rank.rank,
).map(tuple)
ASCENDING = st.lists(NUMBERS, max_size=6, unique=True).map(sorted).map(tuple)
WORLDS = st.builds(
    World,
    WORDS,
    NUMBERS,
    st.lists(WORDS.filter(lambda word: "/" not in word), max_size=3).map(tuple),
    st.lists(ASCENDING, max_size=3).map(tuple),
    st.integers(-1, 5),
    st.lists(NUMBERS, max_size=3).map(tuple),
    NUMBERS,
    WORDS,
    TUPLES,
)
PLANS = st.builds(
    NodePlan,
    RANKS,
    st.lists(st.builds(AppPlan, TUPLES, WORDS, TUPLES, WORDS, TUPLES, st.booleans(), WORDS), max_size=3).map(tuple),
    TUPLES,
    TUPLES,
    TUPLES,
    TUPLES,
    st.lists(
        st.builds(ServicePlan, NUMBERS, TUPLES, program=WORDS, hint=WORDS, name=WORDS, kind=WORDS, hosts=TUPLES),
        max_size=2,
    ).map(tuple),
    st.lists(NUMBERS, max_size=3).map(tuple),
    st.booleans(),
    st.sampled_from(["auto", "yes", "no"]),
    st.floats(0, 1000),
    st.sampled_from(["rank", "group"]),
    st.booleans(),
    st.booleans(),
    WORLDS,
    TUPLES,
)


@FEW
@given(ASCENDING)
def test_numbers_are_written_as_runs(numbers: tuple[int, ...]) -> None:
    assert control.unpack_runs(pack_runs(numbers)) == numbers


@pytest.mark.parametrize("text", ["0:99999999999:1", "0:1048577:3", "0:1048576:1 0:1:1"])
def test_runs_are_of_ranks_that_a_job_can_have(text: str) -> None:
    with pytest.raises(ValueError):
        control.unpack_runs(text)


@FEW
@given(PLANS)
def test_a_plan_survives_a_round_trip(plan: NodePlan) -> None:
    again = control.unpack_plan(control.pack_plan(plan))
    assert again == plan
    assert control.unpack_plan(AlikePlans().pack(plan)) == plan
    assert [type(rank) for rank in again.ranks] == [RankPlan] * len(plan.ranks)
    assert type(again.merge) is bool


@FEW
@given(st.lists(PLANS, min_size=1, max_size=3))
def test_plans_with_fields_alike_survive_one_after_the_other(plans: list[NodePlan]) -> None:
    mixed = [plan._replace(env=plans[0].env, world=plans[-1].world, ranks=plans[-1].ranks) for plan in plans]
    packer = AlikePlans()
    for plan in (*plans, *mixed, *plans):
        assert control.unpack_plan(packer.pack(plan)) == plan


@FEW
@given(st.builds(Hello, WORDS, NUMBERS, NUMBERS, NUMBERS, WORDS, TUPLES, WORDS, WORDS))
def test_hello(hello: Hello) -> None:
    assert control.unpack_record(control.Hello, control.pack_record(hello)) == hello


@FEW
@given(st.builds(Reserved, st.lists(NUMBERS, max_size=3).map(tuple), NUMBERS, WORDS))
def test_reserved(reserved: Reserved) -> None:
    assert control.unpack_record(control.Reserved, control.pack_record(reserved)) == reserved


@FEW
@given(st.builds(ExitStatus, st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), WORDS, WORDS))
def test_exit(ended: ExitStatus) -> None:
    again = control.unpack_record(ExitStatus, control.pack_record(ended))
    assert again == ended
    assert (again.code is None, again.signal is None) == (ended.code is None, ended.signal is None)


@FEW
@given(st.builds(control.StackTrace, NUMBERS, WORDS, WORDS, WORDS))
def test_traced(traced: control.StackTrace) -> None:
    assert control.unpack_record(control.StackTrace, control.pack_traced(traced)) == traced


def test_a_stack_trace_may_contain_any_bytes() -> None:
    """A NUL in it must not garble the frame."""
    traced = control.StackTrace(1, "a\0b", "gdb", "#0 \0 \udc80 x")
    assert control.unpack_record(control.StackTrace, control.pack_traced(traced)) == control.StackTrace(
        1, "a b", "gdb", "#0   \udc80 x"
    )


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    cpus = draw(st.lists(NUMBERS, min_size=1, max_size=6, unique=True))
    rows = []
    for _ in LEVELS:
        numbers = draw(st.lists(NUMBERS, min_size=len(cpus), max_size=len(cpus)))
        dense = sorted(set(numbers))
        rows.append(tuple(map(dense.index, numbers)) if draw(st.booleans()) else ())
    nodes = len(set(rows[LEVELS.index("numa")]))
    numa = draw(st.lists(NUMBERS, min_size=nodes, max_size=nodes, unique=True)) if draw(st.booleans()) else ()
    return Topology(tuple(cpus), tuple(rows), tuple(numa))


@FEW
@given(topologies())
def test_a_topology(topology: Topology) -> None:
    again = control.unpack_topology(control.pack_topology(topology))
    assert again == topology and type(again) is Topology


NOTHING = dict.fromkeys((*LEVELS, "nodes"), ())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        NOTHING,
        {"cpus": ["0", "1"]},
        {**NOTHING, "cpus": []},
        {**NOTHING, "cpus": ["0", "0"]},
        {**NOTHING, "cpus": ["-1"]},
        {**NOTHING, "cpus": ["a"]},
        {**NOTHING, "cpus": ["0", "1"], "core": ["0"]},
        {**NOTHING, "cpus": ["0", "1"], "core": ["0", "2"]},
        {**NOTHING, "cpus": ["0", "1"], "core": ["1", "1"]},
        {**NOTHING, "cpus": ["0", "1"], "numa": ["-1", "0"]},
        {**NOTHING, "cpus": ["0"], "numa": ["99999999999999999999"]},
        {**NOTHING, "cpus": ["0", "1"], "socket": ["0", "1", "1"]},
        {**NOTHING, "cpus": ["0", "1"], "numa": ["0", "0"], "nodes": ["0", "1"]},
    ],
)
def test_no_topology(fields: dict[str, Sequence[str]]) -> None:
    with pytest.raises(WireError, match="unpack_topology"):
        control.unpack_topology(pack(fields))


@FEW
@given(st.binary(max_size=40))
def test_any_bytes_are_a_topology_or_an_error(payload: bytes) -> None:
    with pytest.raises(WireError):
        control.unpack_topology(payload)


@FEW
@given(st.lists(WORDS, max_size=3), NUMBERS, WORDS)
def test_probe_and_addresses(addresses: list[str], port: int, token: str) -> None:
    for record in (control.Probe(tuple(addresses), port, token), control.Reached(tuple(addresses))):
        again = control.unpack_record(type(record), control.pack_record(record))
        assert again == record and type(again) is type(record)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": ["a"]},
        {"name": ["a"], "mode": []},
        {"name": ["a"], "mode": ["x"]},
        {"name": ["a", "b"], "mode": ["1"]},
    ],
)
def test_no_record(fields: dict[str, Sequence[str]]) -> None:
    with pytest.raises(WireError, match="FileHead"):
        control.unpack_record(control.FileHead, pack(fields))
