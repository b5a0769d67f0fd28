"""Ranks to cpus: the rules on described machines, and what holds on every machine, mask and policy.

That mpirun has the same rules is shown by tests/compat/test_binding_against_mpirun.py.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import ARM, EPYC, FOUR_SOCKETS, LAPTOP, MACHINES, XEON, machine

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.datamodel.request import Policy
from mslaunch.errors import AllocationError, LaunchError, UsageError
from mslaunch.plan.binding import bind, check, usable, wants_binding
from mslaunch.plan.cpu_lists import listed, only

MANY = settings(max_examples=300, deadline=None)
SMALL = machine("socket:2 core:4 thread:2").topology()  # cpus 0 1 are core 0, and so on
CORES = [(at, at + 1) for at in range(0, 16, 2)]
WHOLE = ("", 0)


def mapped(*locales: tuple[str, int], over: bool = False, nodes: int = 1) -> JobMap:
    """Ranks with these locales, dealt to so many nodes in blocks."""
    each = -(-len(locales) // nodes)
    rows = tuple(Placement(rank, 0, rank // each, rank % each, (), locale) for rank, locale in enumerate(locales))
    return JobMap(tuple(Node(f"n{at}", each, "-H") for at in range(nodes)), rows, len(locales), over)


def cpus(jobmap: JobMap, policy: Policy, topology: Topology = SMALL) -> list[tuple[int, ...]]:
    """The cpus of each rank, as the launcher binds them."""
    topologies = {node.name: topology for node in jobmap.nodes}
    return [row.cpus for row in bind(jobmap, policy, usable(policy, topologies)).placements]


def members(topology: Topology, level: str) -> list[set[int]]:
    """The cpus of each object of a level."""
    row = topology.objects[LEVELS.index(level)]
    return [{cpu for cpu, at in zip(topology.cpus, row) if at == number} for number in sorted(set(row))]


# --------------------------------------------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("locales", "policy", "want"),
    [
        # by default one or two ranks get a core each, and more get a NUMA domain
        ([WHOLE], Policy(), [(0, 1)]),
        ([("core", 0), ("core", 1)], Policy(), [(0, 1), (2, 3)]),
        ([("hwthread", 0), ("hwthread", 1)], Policy(hwthread_cpus=True), [(0,), (1,)]),
        ([("numa", 0), ("numa", 1), ("numa", 0)], Policy(), [range(8), range(8, 16), range(8)]),
        # ... or the object that was mapped by
        ([("socket", 0), ("socket", 1)], Policy("socket"), [range(8), range(8, 16)]),
        ([("hwthread", 5)], Policy("hwthread"), [(5,)]),
        ([WHOLE, WHOLE], Policy("node"), [(0, 1), (2, 3)]),
        ([("socket", 0)] * 3, Policy("ppr", ((3, "socket"),)), [range(8)] * 3),
        # down
        ([("socket", 0), ("socket", 1)] * 2, Policy("socket", bind_to="core"), [(0, 1), (8, 9), (2, 3), (10, 11)]),
        ([WHOLE] * 3, Policy(bind_to="hwthread"), [(0,), (1,), (2,)]),
        ([WHOLE] * 3, Policy(bind_to="socket"), [range(8), range(8, 16), range(8)]),
        # up
        ([("hwthread", 0), ("hwthread", 2)], Policy("hwthread", bind_to="core"), [(0, 1), (2, 3)]),
        ([("core", 1), ("core", 7)], Policy("core", bind_to="socket"), [range(8), range(8, 16)]),
        # in place: where it is full, the next one with room, else the one before
        ([("core", 1), ("core", 1), ("core", 1)], Policy("core"), [(2, 3), (4, 5), (6, 7)]),
        ([("core", 7), ("core", 7)], Policy("core"), [(14, 15), (12, 13)]),
        ([("core", 1)] * 2, Policy("core", bind_to="core"), [(2, 3), (4, 5)]),
        # PE
        ([WHOLE] * 3, Policy("slot", pe=2), [range(4), range(4, 8), range(8, 12)]),
        ([("socket", 0), ("socket", 1)], Policy("socket", pe=3), [range(6), range(8, 14)]),
        ([WHOLE] * 2, Policy("slot", pe=3, hwthread_cpus=True), [range(3), range(3, 6)]),
        ([WHOLE] * 2, Policy("slot", pe=2, bind_to="none"), [(), ()]),
        # more ranks than cpus
        ([("core", 0)] * 9, Policy("core"), [()] * 9),
        ([("socket", 0)] * 5, Policy("socket", bind_to="core", overload=True), [*CORES[:4], CORES[0]]),
        ([("core", 3)] * 9, Policy("core", overload=True), [*CORES[3:], *CORES[2::-1], CORES[3]]),
        ([("numa", 0)] * 9, Policy(oversubscribe=True), [*[range(8)] * 4, *[range(8, 16)] * 4, range(8)]),
        # not at all
        ([WHOLE] * 2, Policy(bind_to="none"), [(), ()]),
        ([WHOLE] * 2, Policy(bind_to="board"), [(), ()]),
    ],
)  # fmt: skip
def test_ranks_are_bound_to_objects(locales: list[tuple[str, int]], policy: Policy, want: list[Any]) -> None:
    topology = machine("socket:2 numa:1 core:4 thread:2").topology()
    assert cpus(mapped(*locales), policy, topology) == [tuple(one) for one in want]


@pytest.mark.parametrize(
    ("text", "policy", "want"),
    [
        ("1,3", Policy(), [(2, 3, 6, 7)] * 3),
        ("1,3", Policy(bind_to="none"), [(2, 3, 6, 7)] * 3),
        ("1,3", Policy(bind_to="cpu-list"), [(2, 3, 6, 7)] * 3),
        ("3,1,4", Policy(bind_to="cpu-list:ordered"), [(2, 3), (6, 7), (8, 9)]),
        ("1-3", Policy(bind_to="core"), [(2, 3), (4, 5), (6, 7)]),
        ("1,3", Policy(bind_to="core", overload=True), [(2, 3), (6, 7), (2, 3)]),
        ("1,5", Policy(bind_to="socket", overload=True), [(2, 3), (10, 11), (2, 3)]),
        ("1,3", Policy(hwthread_cpus=True), [(1, 3)] * 3),
        ("1-3", Policy(bind_to="hwthread"), [(1,), (2,), (3,)]),
        ("1,3-4", Policy(bind_to="cpu-list:ordered", hwthread_cpus=True), [(1,), (3,), (4,)]),
        ("0:1; S1", Policy(), [(2, 3, *range(8, 16))] * 3),
        ("0", Policy("socket"), [(0, 1)] * 3),  # too many for the default: all of the set, not all of the machine
    ],
)
def test_ranks_are_bound_within_a_cpu_set(text: str, policy: Policy, want: list[tuple[int, ...]]) -> None:
    assert cpus(mapped(WHOLE, WHOLE, WHOLE), policy._replace(cpu_set=text)) == want
    oversubscribed = cpus(mapped(WHOLE, WHOLE, WHOLE, over=True), policy._replace(cpu_set=text))
    assert oversubscribed == want


def test_cpus_of_a_rankfile_are_kept() -> None:
    jobmap = mapped(WHOLE, WHOLE)
    jobmap = jobmap._replace(placements=tuple(row._replace(cpus=(7, row.rank)) for row in jobmap.placements))
    policy = Policy(rankfile="ranks", cpu_set="0")
    assert not wants_binding(policy, jobmap)
    assert cpus(jobmap, policy) == [(7, 0), (7, 1)]
    assert usable(policy, {"n0": SMALL}) == {"n0": SMALL}, "its numbers are those of the whole machine"


def test_ranks_with_a_binding_keep_it() -> None:
    first, second = mapped(WHOLE, WHOLE).placements
    jobmap = mapped(WHOLE, WHOLE)._replace(placements=(first._replace(cpus=(9, 11)), second))
    assert cpus(jobmap, Policy(bind_to="core")) == [(9, 11), (0, 1)]


def test_each_node_is_bound_separately() -> None:
    """Where the default cannot be met on one node, the ranks of the others are bound all the same."""
    jobmap = mapped(*[("core", 0)] * 4, nodes=2)
    topologies = {"n0": SMALL, "n1": machine("socket:1 core:1 thread:1").topology()}
    assert [row.cpus for row in bind(jobmap, Policy("core"), topologies).placements] == [(0, 1), (2, 3), (), ()]


def test_many_nodes_take_no_longer() -> None:
    """Each node looked through the ranks of all: 10,000 ranks on 5,000 nodes took 7 s."""
    jobmap = mapped(*[WHOLE] * 10000, nodes=5000)
    begin = time.process_time()
    assert all(cpus(jobmap, Policy(bind_to="core")))
    assert time.process_time() - begin < 2


def test_machines_without_a_topology() -> None:
    bare = Topology((4, 5), ((0, 1), (), (), (), (), (), (), ()))
    assert cpus(mapped(WHOLE), Policy(), bare) == [()], "no cores, so no default"
    assert cpus(mapped(*[WHOLE] * 3), Policy(), bare) == [(), (), ()]
    assert cpus(mapped(WHOLE, WHOLE), Policy(bind_to="hwthread"), bare) == [(4,), (5,)]
    sockets = SMALL._replace(objects=(*SMALL.objects[:5], (), *SMALL.objects[6:]))
    assert cpus(mapped(*[WHOLE] * 3), Policy(), sockets) == [tuple(range(8)), tuple(range(8, 16)), tuple(range(8))]
    assert [row.cpus for row in bind(mapped(WHOLE), Policy(), {}).placements] == [()]
    assert [row.cpus for row in bind(mapped(WHOLE), Policy(bind_to="core", if_supported=True), {}).placements] == [()]
    assert cpus(mapped(WHOLE), Policy(bind_to="l3cache", if_supported=True)) == [()]


@pytest.mark.parametrize(
    ("policy", "over", "want"),
    [
        (Policy(), False, True),
        (Policy(), True, False),
        (Policy("socket"), True, False),
        (Policy(bind_to="core"), True, True),
        (Policy("slot", pe=2), True, True),
        (Policy(bind_to="none"), False, False),
        (Policy(bind_to="board"), False, False),
        (Policy(bind_to="none", cpu_set="0"), True, True),
        (Policy(rankfile="ranks"), True, True),
    ],
)
def test_policies_that_need_topologies(policy: Policy, over: bool, want: bool) -> None:
    assert wants_binding(policy, mapped(WHOLE, over=over)) == want


# --------------------------------------------------------------------------------------------------- refusals


def test_more_ranks_than_cpus_are_refused() -> None:
    with pytest.raises(AllocationError) as caught:
        cpus(mapped(*[("socket", 1)] * 5), Policy("socket", bind_to="core"))
    assert str(caught.value).splitlines() == [
        "--bind-to core: 5 ranks on n0: 2 of them would be bound to core 4, which has 1 cpu",
        "  ask for fewer ranks a node, use --bind-to none, or allow it with --bind-to core:overload-allowed",
    ]


@pytest.mark.parametrize(
    ("policy", "ranks", "words"),
    [
        (Policy(bind_to="core"), 9, ("--bind-to core", "n0", "9 ranks", "1 cpu", "overload-allowed")),
        (Policy(bind_to="core", oversubscribe=True), 9, ("--bind-to core", "overload-allowed")),
        (Policy(bind_to="hwthread"), 17, ("hwthread 0", "overload-allowed")),
        (Policy(bind_to="socket"), 9, ("socket 0", "5 of them", "4 cpus")),
        (Policy("slot", pe=3), 3, ("PE=3", "n0", "no 3 free cpus")),
        (Policy("slot", pe=2), 5, ("PE=2", "core 0", "overload-allowed")),
        (Policy(bind_to="l3cache"), 1, ("--bind-to l3cache", "no l3cache", "core, l1cache, l2cache, numa, socket")),
        (Policy("l3cache"), 1, ("--map-by l3cache", "no l3cache")),
        (Policy("slot", pe=2, bind_to="socket"), 1, ("--bind-to socket", "PE=2", "--bind-to core")),
        (Policy("slot", pe=2, bind_to="core", hwthread_cpus=True), 1, ("--bind-to core", "--bind-to hwthread")),
        (Policy(bind_to="cpu-list"), 1, ("--bind-to cpu-list", "--cpu-list 0,1")),
        (Policy(bind_to="cpu-list:ordered", cpu_set="0,1"), 3, ("3 ranks on n0", "names 2 cpus")),
        (Policy(cpu_set="8"), 1, ("--cpu-set", "n0 has no core 8", "0 to 7")),
        (Policy(cpu_set="16", hwthread_cpus=True), 1, ("no hardware thread 16", "0 to 15")),
        (Policy(cpu_set="1:4"), 1, ("no core 1:4", "0 to 3")),
        (Policy(cpu_set="S2"), 1, ("no socket 2", "0 to 1")),
        (Policy(cpu_set="2,3", bind_to="core"), 3, ("3 ranks", "core 0 of --cpu-set 2,3", "overload-allowed")),
    ],
)
def test_bindings_that_are_refused(policy: Policy, ranks: int, words: tuple[str, ...]) -> None:
    with pytest.raises(LaunchError) as caught:
        cpus(mapped(*[WHOLE] * ranks), policy)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("policy", [Policy(bind_to="core"), Policy(pe=2), Policy(cpu_set="0")])
def test_a_node_without_known_cpus_is_refused(policy: Policy) -> None:
    with pytest.raises(UsageError, match=r"ranks on n0 cannot be bound.*does not tell"):
        bind(mapped(WHOLE), policy, {})


def test_contradictions_are_refused_before_hosts_are_asked() -> None:
    check(Policy("slot", pe=2, bind_to="hwthread"))
    with pytest.raises(UsageError):
        check(Policy("slot", pe=2, bind_to="numa"))


# --------------------------------------------------------------------------------------------------- lists of cpus


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", {0, 1}),
        ("0,2-3", {0, 1, 4, 5, 6, 7}),
        (" 0 , 2 ;3 ", {0, 1, 4, 5, 6, 7}),
        ("1:0", {8, 9}),
        ("1:0,1", {8, 9, 10, 11}),
        ("0:0:2", {0, 1, 4, 5}),
        ("0:0;1:0-1", {0, 1, 8, 9, 10, 11}),
        ("0:3,1:3", {6, 7, 14, 15}),
        ("S1:c2", {12, 13}),
        ("1:*", set(range(8, 16))),
        ("*", set(range(16))),
        ("S0-1", set(range(16))),
        ("s*", set(range(16))),
    ],
)
def test_lists_of_cpus_are_read(text: str, want: set[int]) -> None:
    assert {SMALL.cpus[place] for place in listed(text, SMALL, False, "rf:1", "n0")} == want


@pytest.mark.parametrize("text", ["", ",", "a", "1-", "-1", "0,3-1", "1-2-3", "0x1", "1:", ":1", "S", "9999999", "¹"])
def test_malformed_lists_of_cpus_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        listed(text, SMALL, False, "rf:1", "n0")
    assert caught.value.where == "rf:1"
    assert caught.value.todo


@MANY
@given(st.text("0123456789,-:;*SsCc ", max_size=12), st.sampled_from(sorted(MACHINES)), st.booleans())
def test_any_text_is_a_list_of_cpus_or_refused(text: str, name: str, hwthreads: bool) -> None:
    topology = MACHINES[name].topology()
    try:
        places = listed(text, topology, hwthreads, "--cpu-set", "n0")
    except UsageError:
        return
    assert places
    assert list(places) == sorted(set(places))
    assert set(places) <= set(range(len(topology.cpus)))


@MANY
@given(st.data())
def test_a_topology_can_be_restricted_to_some_cpus(data: st.DataObject) -> None:
    made = MACHINES[data.draw(st.sampled_from(sorted(MACHINES)))]
    kept = data.draw(st.sets(st.sampled_from(made.cpus), min_size=1))
    topology = made.topology()
    places = [place for place, cpu in enumerate(topology.cpus) if cpu in kept]
    assert only(topology, places) == made.topology(kept)


# --------------------------------------------------------------------------------------------------- on every machine


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Topology, JobMap, Policy]:
    """A machine, often with half of a core masked out, ranks on its objects, and a policy."""
    made = draw(st.sampled_from([XEON, EPYC, LAPTOP, ARM, FOUR_SOCKETS, machine("socket:2 core:2 thread:3", "odd")]))
    kept = draw(st.none() | st.sets(st.sampled_from(made.cpus), min_size=1, max_size=12))
    topology = made.topology(kept)
    levels = [level for level in LEVELS if topology.objects[LEVELS.index(level)]]
    level = draw(st.sampled_from(["", *levels]))
    objects = max(topology.objects[LEVELS.index(level)]) + 1 if level else 1
    start = draw(st.integers(0, objects - 1))
    ranks = draw(st.integers(1, 12))
    jobmap = mapped(*[(level, (start + rank) % objects) for rank in range(ranks)])
    policy = Policy(
        level or "slot",
        bind_to=draw(st.sampled_from(["", *levels])),
        overload=draw(st.booleans()),
        hwthread_cpus=draw(st.booleans()),
    )
    return topology, jobmap, policy


def bound(topology: Topology, jobmap: JobMap, policy: Policy) -> list[tuple[int, ...]]:
    try:
        return cpus(jobmap, policy, topology)
    except AllocationError as error:
        assert policy.bind_to, "only what somebody asked for is refused"
        assert not policy.overload, "nothing is too much where that is allowed"
        assert "overload-allowed" in str(error)
        assume(False)
        raise


def target(policy: Policy, ranks: int, topology: Topology) -> str:
    cpu = "hwthread" if policy.hwthread_cpus else "core"
    by_default = cpu if ranks <= 2 else next(level for level in ("numa", "socket") if members(topology, level))
    return policy.bind_to or (policy.map_by if policy.map_by in LEVELS else by_default)


@MANY
@given(jobs())
def test_each_rank_is_bound_to_one_object_of_the_level(job: tuple[Topology, JobMap, Policy]) -> None:
    topology, jobmap, policy = job
    found = bound(*job)
    objects = members(topology, target(policy, len(found), topology))
    assert all(set(one) in objects for one in found if one)
    assert all(found) or not any(found), "all of a node or none"
    assert all(found) or not (policy.bind_to or policy.overload), "only the default is ever given up"
    assert all(list(one) == sorted(one) for one in found)
    before = jobmap.placements
    after = bind(jobmap, policy, {"n0": topology}).placements
    assert [row._replace(cpus=()) for row in after] == list(before), "nothing else has changed"


@MANY
@given(jobs())
def test_ranks_share_no_cpu_unless_overload_is_allowed(job: tuple[Topology, JobMap, Policy]) -> None:
    topology, _, policy = job
    assume(not policy.overload)
    found = bound(*job)
    threads = policy.hwthread_cpus or "hwthread" in (policy.bind_to, policy.map_by)
    cores = members(topology, "hwthread" if threads else "core")
    for one in set(filter(None, found)):
        assert found.count(one) <= len([core for core in cores if core <= set(one)])


@MANY
@given(jobs())
def test_downwards_and_upwards_stay_with_the_locale(job: tuple[Topology, JobMap, Policy]) -> None:
    topology, jobmap, policy = job
    found = bound(*job)
    level = target(policy, len(found), topology)
    for one, row in zip(found, jobmap.placements):
        if one and row.locale[0] not in ("", level):
            place = members(topology, row.locale[0])[row.locale[1]]
            assert set(one) <= place or place <= set(one)


@MANY
@given(jobs())
def test_the_ranks_of_a_whole_node_are_spread_evenly(job: tuple[Topology, JobMap, Policy]) -> None:
    topology, jobmap, policy = job
    jobmap = mapped(*[WHOLE] * len(jobmap.placements))
    policy = policy._replace(map_by="slot")
    found = bound(topology, jobmap, policy)
    objects = members(topology, target(policy, len(found), topology))
    loads = [sum(set(one) == thing for one in found) for thing in objects]
    assert max(loads) - min(loads) <= 1
