"""Maps onto objects: sockets, cores and caches, ppr, ranking; each expected map was seen of mpirun 4.1.4.

The differential test (tests/compat/test_against_mpirun.py) compares many more with it, where it is installed.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine

from mslaunch.datamodel.jobmap import Allocation, JobMap, Node
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import AllocationError, LaunchError, UsageError
from mslaunch.plan.mapping.mapper import map_job, settle, topology_decides
from mslaunch.plan.mapping.topology_view import flat

FEW = settings(max_examples=60, deadline=None)
TWO = machine("socket:2 core:4 thread:2").topology()  # two sockets, eight cores
FOUR = machine("socket:2 numa:2 l3:1 core:2 thread:1").topology()  # four NUMA nodes, eight cores


def allocation(*slots: int, **more: Any) -> Allocation:
    """Nodes a, b, c… with so many slots."""
    return Allocation(tuple(Node(chr(97 + at), many, f"hf:{at + 1}") for at, many in enumerate(slots)), True, **more)


def mapped(policy: Policy, *nps: int | None, slots: tuple[int, ...] = (8, 8), machine: Topology = TWO) -> JobMap:
    request = Request(tuple(AppContext(("x",), np) for np in nps), policy)
    made = allocation(*slots)
    return map_job(request, made, {node.name: machine for node in made.nodes})


def shown(jobmap: JobMap) -> str:
    """Rank by rank, the node and the number of the object: `a0 a1 b0`; without an object, only the node."""
    return " ".join(
        jobmap.nodes[one.node].name + (str(one.locale[1]) if one.locale[0] else "") for one in jobmap.placements
    )


# ------------------------------------------------------------------------------------------------- by object, and SPAN


@pytest.mark.parametrize(
    ("policy", "nps", "want"),
    [
        (Policy(), (2,), "a0 a1"),  # by core
        (Policy(hwthread_cpus=True), (2,), "a0 a1"),  # by hwthread
        (Policy("socket"), (4,), "a0 a1 a0 a1"),
        (Policy("socket"), (10,), "a0 a1 a0 a1 a0 a1 a0 a1 b0 b1"),
        (Policy("socket"), (3, 2), "a0 a1 a0 a1 a0"),  # goes on where the first program ended
        (Policy("l3cache"), (2,), "a a"),  # there are none
        (Policy("socket", span=True), (4,), "a0 a1 b0 b1"),
        (Policy(span=True), (4,), "a0 a1 b0 b1"),  # a modifier alone: by socket
        (Policy("slot", span=True), (3,), "a a a"),
        (Policy("slot", pe=2), (3,), "a a a"),
        (Policy("socket", pe=4), (2,), "a0 a1"),
        (Policy("board"), (2,), "a a"),
        (Policy("node"), (3,), "a b a"),
    ],
)
def test_ranks_are_mapped_to_objects(policy: Policy, nps: tuple[int, ...], want: str) -> None:
    assert shown(mapped(policy, *nps)) == want


@pytest.mark.parametrize(
    ("policy", "ranks", "level"),
    [
        (Policy(), 2, "core"),
        (Policy(), 3, "numa"),
        (Policy(hwthread_cpus=True), 2, "hwthread"),
        (Policy(hwthread_cpus=True), 3, "numa"),
        (Policy(pe=2), 2, "socket"),
        (Policy(span=True), 9, "socket"),
        (Policy("node"), 1, ""),
        (Policy("slot"), 9, ""),
    ],
)
def test_defaults_of_mapping_and_ranking(policy: Policy, ranks: int, level: str) -> None:
    assert {one.locale[0] for one in mapped(policy, ranks, slots=(9,), machine=FOUR).placements} == {level}


def test_default_ranking_follows_node_only() -> None:
    for by in ("slot", "socket", "core"):
        assert settle(Policy(by), lambda: 4, lambda _: True).rank_by == "slot"
    assert settle(Policy("node"), lambda: 4, lambda _: True).rank_by == "node"
    assert settle(Policy("node", rank_by="slot"), lambda: 4, lambda _: True).rank_by == "slot"
    assert settle(Policy(), lambda: 4, lambda _: False).map_by == "socket"


def test_span_may_overrun_the_slots_of_one_node_but_not_of_all() -> None:
    jobmap = mapped(Policy("socket", span=True), 5, slots=(4, 1))
    assert shown(jobmap) == "a0 a1 a0 b0 b1"
    assert jobmap.oversubscribed
    with pytest.raises(AllocationError):
        mapped(Policy("socket", span=True), 6, slots=(4, 1))


def test_after_span_the_next_program_begins_where_the_first_ended() -> None:
    assert shown(mapped(Policy("core", span=True), 9, 1, machine=TWO)).split()[-1][0] == "b"


def test_span_keeps_max_slots() -> None:
    made = allocation(4, 4)
    made = made._replace(nodes=(made.nodes[0]._replace(max_slots=1), made.nodes[1]))
    request = Request((AppContext(("x",), 4),), Policy("socket", span=True, oversubscribe=True))
    assert shown(map_job(request, made, {"a": TWO, "b": TWO})) == "a0 b0 b1 b0"


# ------------------------------------------------------------------------------------------------------------------ ppr


@pytest.mark.parametrize(
    ("ppr", "np", "want"),
    [
        (((2, "node"),), None, "a a b b"),
        (((1, "socket"),), None, "a0 a1 b0 b1"),
        (((2, "socket"),), 6, "a0 a0 a1 a1 b0 b0"),
        (((1, "core"),), 3, "a0 a1 a2"),
        (((1, "core"),), None, " ".join(f"{node}{core}" for node in "ab" for core in range(8))),
        (((1, "core"), (3, "socket")), None, "a0 a1 a2 a4 a5 a6 b0 b1 b2 b4 b5 b6"),
        (((2, "core"), (3, "node")), 6, "a0 a1 a2 b0 b1 b2"),
    ],
)
def test_ppr_maps_n_ranks_to_each_object(ppr: tuple[tuple[int, str], ...], np: int | None, want: str) -> None:
    assert shown(mapped(Policy("ppr", ppr), np)) == want


def test_without_np_no_more_than_slots_but_the_pattern_for_sockets() -> None:
    assert shown(mapped(Policy("ppr", ((1, "core"),)), None, slots=(2,))) == "a0 a1"
    with pytest.raises(AllocationError):
        mapped(Policy("ppr", ((2, "socket"),)), None, slots=(3,))


@pytest.mark.parametrize(
    ("policy", "np", "want"),
    [
        (Policy("socket", ((2, "node"),)), 4, "a0 a1 b0 b1"),
        (Policy("node", ((2, "node"),)), 4, "a b a b"),
        (Policy("slot", ((1, "node"),)), None, "a b"),
        (Policy("node", ((1, "node"),)), 5, "a b a b a"),  # more than N a node: N again
        (Policy("socket", ((2, "node"),)), 7, "a0 a1 a0 a1 b0 b1 b0"),
        (Policy("slot", ((1, "node"),)), 4, "a a a b"),
        (Policy("socket", ((1, "socket"),)), 3, "a0 a1 b0"),
    ],
)
def test_npernode_may_be_combined_with_another_policy(policy: Policy, np: int | None, want: str) -> None:
    assert shown(mapped(policy, np)) == want


# -------------------------------------------------------------------------------------------------------------- ranking


@pytest.mark.parametrize(
    ("by", "rank_by", "how", "want"),
    [
        ("core", "socket", "", "a0 a4 a1 a2 a3"),
        ("core", "socket", "fill", "a0 a1 a2 a3 a4"),
        ("socket", "core", "", "a0 a0 a0 a1 a1"),
        ("slot", "core", "", "a a a a a"),
        ("core", "node", "", "a0 a1 a2 a3 a4"),
        ("core", "board", "", "a0 a1 a2 a3 a4"),
    ],
)
def test_rank_by_object(by: str, rank_by: str, how: str, want: str) -> None:
    assert shown(mapped(Policy(by, rank_by=rank_by, rank_how=how), 5)) == want


@pytest.mark.parametrize(
    ("how", "want"),
    [
        ("", "a0 a1 a0 a1 b0 b1 b0 b1"),
        ("span", "a0 a1 b0 b1 a0 a1 b0 b1"),
        ("fill", "a0 a0 a1 a1 b0 b0 b1 b1"),
    ],
)
def test_rank_by_socket_over_nodes(how: str, want: str) -> None:
    """The examples of mpirun's manual."""
    assert shown(mapped(Policy("socket", rank_by="socket", rank_how=how), 8, slots=(4, 4))) == want


@pytest.mark.parametrize(("how", "want"), [("span", "a0 a1 b0 b1 a0 a1 b0 b1"), ("fill", "a0 a0 a1 a1 b0 b0 b1 b1")])
@pytest.mark.parametrize("by", [Policy("socket"), Policy("ppr", ((2, "socket"),))])
def test_fill_and_span_alone_are_of_the_objects_that_ranks_are_mapped_by(by: Policy, how: str, want: str) -> None:
    """PRRTE's rmaps_base_ranking.c, the order of which is in its comments."""
    assert shown(mapped(by._replace(rank_how=how), 8, slots=(4, 4))) == want


@pytest.mark.parametrize("by", [Policy("slot"), Policy("node"), Policy("ppr", ((2, "node"),))])
@pytest.mark.parametrize("how", ["span", "fill"])
def test_fill_and_span_need_objects(by: Policy, how: str) -> None:
    """Open MPI 5.0.11: When ranking by FILL or by SPAN, you must map by an object type."""
    with pytest.raises(UsageError, match=f"--rank-by {how}: ranks are mapped by (slot|node), not by an object"):
        mapped(by._replace(rank_how=how), 2)


@pytest.mark.parametrize(
    ("nps", "ppn", "want"),
    [
        ((5,), 0, "a a b a a"),
        ((5,), 1, "a b a b a"),
        ((None,), 0, "a a b"),
        ((None,), 2, "a a b b"),
        ((1, 3), 0, "a a b a"),
    ],
)
def test_rounds_deal_ranks_as_hydra_does(nps: tuple[int | None, ...], ppn: int, want: str) -> None:
    assert shown(mapped(Policy("rounds", ppn=ppn), *nps, slots=(2, 1))) == want


def test_nodes_are_ranked_in_the_order_of_their_first_rank() -> None:
    request = Request(tuple(AppContext(("x",), np) for np in (1, 3)), Policy())
    made = allocation(2, 2, apps=((1,), (0, 1)))
    jobmap = map_job(request, made, {})
    assert [jobmap.nodes[one.node].name for one in jobmap.placements] == ["b", "b", "a", "a"]


# ----------------------------------------------------------------------------------------------------- hosts, refusals


def test_nolocal_leaves_this_host_out() -> None:
    made = allocation(2, 2)
    made = made._replace(nodes=(made.nodes[0]._replace(local=True), made.nodes[1]))
    one = Request((AppContext(("x",)),), Policy(nolocal=True))
    assert shown(map_job(one, made, {})) == "b0 b1"
    with pytest.raises(AllocationError, match="without this host"):
        map_job(one, made._replace(nodes=made.nodes[:1]), {})


@pytest.mark.parametrize(
    ("policy", "error", "why"),
    [
        (Policy("dist"), UsageError, "how far a device"),
        (Policy("core", pe=2), UsageError, "a core has no 2 cpus"),
        (Policy("hwthread", pe=2), UsageError, "hwthread"),
        (Policy("numa", pe=9), AllocationError, "numa 0 of a has 8 cores"),
        (Policy("slot", pe=9), AllocationError, "a has 8 cores"),
        (Policy("socket", rank_by="l3cache"), AllocationError, "a has no l3cache"),
        (Policy("ppr", ((1, "l3cache"),)), AllocationError, "a has no l3cache"),
        (Policy("seq"), AllocationError, "no list of hosts"),
        (Policy("node", oversubscribe=False, ppr=((5, "node"),)), AllocationError, "not enough slots"),
    ],
)
def test_maps_without_room_are_refused(policy: Policy, error: type[LaunchError], why: str) -> None:
    np = 4 if policy.map_by != "node" else None
    with pytest.raises(error, match=why) as caught:
        mapped(policy, np, slots=(4, 4), machine=TWO)
    assert caught.value.todo


def test_pe_is_not_checked_against_what_is_not_known_or_not_bound() -> None:
    request = Request((AppContext(("x",), 1),), Policy("slot", pe=4))
    assert len(map_job(request, allocation(1), {}).placements) == 1
    assert shown(mapped(Policy("slot", pe=99, bind_to="none"), 1)) == "a"


# ------------------------------------------------------------------------------------------------------------- sequence


def sequence(*lists: tuple[int, ...], slots: tuple[int, ...] = (2, 2)) -> Allocation:
    return allocation(*slots, sequences=lists)


@pytest.mark.parametrize(
    ("lists", "nps", "want"),
    [
        (((1, 0, 1, 0),), (4,), "b a b a"),
        (((1, 0, 1, 0),), (3,), "b a b"),
        (((1, 0, 1),), (None,), "b a b"),
        (((1, 0, 1, 0), ()), (1, 2), "b a b"),
        (((0,), (1, 1)), (None, None), "a b b"),
    ],
)
def test_seq_follows_the_list(lists: tuple[tuple[int, ...], ...], nps: tuple[int | None, ...], want: str) -> None:
    request = Request(tuple(AppContext(("x",), np) for np in nps), Policy("seq"))
    assert shown(map_job(request, sequence(*lists), {})) == want


@pytest.mark.parametrize(
    ("lists", "nps", "why"),
    [
        (((1, 0),), (3,), "2 hosts listed"),
        (((1, 0), ()), (2, 1), "no list"),
        (((0,), (0,), (0,)), (1, 1, 1), "a has none left for rank 2"),
    ],
)
def test_a_list_that_is_too_short_is_refused(
    lists: tuple[tuple[int, ...], ...], nps: tuple[int, ...], why: str
) -> None:
    request = Request(tuple(AppContext(("x",), np) for np in nps), Policy("seq"))
    with pytest.raises(AllocationError, match=why):
        map_job(request, sequence(*lists), {})


# ----------------------------------------------------------------------------------------------------------- properties

MACHINES = st.sampled_from(
    [
        TWO,
        FOUR,
        flat(3),
        machine("socket:1 core:1 thread:1").topology(),
        machine("socket:1 l3:3 core:2 thread:2").topology(),
        machine("socket:2 numa:1 core:3 thread:2").topology(),
    ]
)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Request, Allocation, dict[str, Topology]]:
    slots = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    policy = Policy(
        draw(st.sampled_from(["", "slot", "node", "ppr", "seq", *LEVELS])),
        pe=draw(st.sampled_from([0, 0, 0, 1, 2])),
        span=draw(st.booleans()),
        rank_by=draw(st.sampled_from(["", "slot", "node", *LEVELS])),
        rank_how=draw(st.sampled_from(["", "span", "fill"])),
        oversubscribe=draw(st.none() | st.booleans()),
        hwthread_cpus=draw(st.booleans()),
        bind_to=draw(st.sampled_from(["", "none"])),
    )
    levels = st.tuples(st.integers(1, 3), st.sampled_from(["node", *LEVELS]))
    if policy.map_by == "ppr":
        policy = policy._replace(ppr=tuple(draw(st.lists(levels, min_size=1, max_size=2, unique_by=lambda p: p[1]))))
    elif policy.map_by != "seq" and draw(st.integers(0, 4)) == 0:
        policy = policy._replace(ppr=((draw(st.integers(1, 3)), "node"),))
    nps = draw(st.lists(st.none() | st.integers(1, 9), min_size=1, max_size=3))
    made = allocation(*slots)
    if policy.map_by == "seq":
        nodes = st.lists(st.integers(0, len(slots) - 1), max_size=9).map(tuple)
        made = made._replace(sequences=tuple(draw(nodes) for _ in nps))
    topologies = {node.name: draw(MACHINES) for node in made.nodes}
    return Request(tuple(AppContext(("x",), np) for np in nps), policy), made, topologies


def attempt(request: Request, made: Allocation, topologies: dict[str, Topology]) -> JobMap | None:
    try:
        return map_job(request, made, topologies)
    except LaunchError as error:
        assert error.todo and error.what
        return None


@FEW
@given(jobs())
def test_invariants_of_every_map_onto_objects(job: tuple[Request, Allocation, dict[str, Topology]]) -> None:
    request, _, topologies = job
    jobmap = attempt(*job)
    if jobmap is None:
        return
    assert [one.rank for one in jobmap.placements] == list(range(len(jobmap.placements)))
    assert [one.app for one in jobmap.placements] == sorted(one.app for one in jobmap.placements)
    for at, node in enumerate(jobmap.nodes):
        here = [one for one in jobmap.placements if one.node == at]
        assert [one.local_rank for one in here] == list(range(len(here)))
        for level, number in {one.locale for one in here}:
            assert not level or number in topologies[node.name].objects[LEVELS.index(level)]
        if not request.policy.span and not request.policy.oversubscribe:
            assert len(here) <= (node.slots or 0)
    for app, context in enumerate(request.apps):
        assert context.np in (None, sum(one.app == app for one in jobmap.placements))


@FEW
@given(jobs())
def test_topologies_move_no_rank_unless_they_decide(job: tuple[Request, Allocation, dict[str, Topology]]) -> None:
    """So the launcher may map first with slots alone, and ask only the nodes of that map."""
    request, made, _ = job
    if topology_decides(request.policy):
        return
    blind, seeing = attempt(request, made, {}), attempt(*job)
    if seeing is not None:
        assert blind is not None
        assert [(one.rank, blind.nodes[one.node].name, one.local_rank, one.app) for one in blind.placements] == [
            (one.rank, seeing.nodes[one.node].name, one.local_rank, one.app) for one in seeing.placements
        ]


@pytest.mark.parametrize(
    ("policy", "decides"),
    [
        (Policy(), False),
        (Policy("socket"), False),
        (Policy("ppr", ((2, "node"),)), False),
        (Policy("ppr", ((1, "socket"),)), True),
        (Policy("socket", ((2, "node"),)), False),
        (Policy("socket", span=True), True),
        (Policy(span=True), True),
        (Policy("node", span=True), False),
        (Policy("slot", rank_by="socket"), False),
        (Policy("slot", rank_by="socket", rank_how="span"), True),
        (Policy("slot", rank_by="board", rank_how="span"), False),
        (Policy("core", rank_how="span"), True),
        (Policy(rank_how="span"), True),
        (Policy("core", rank_how="fill"), False),
        (Policy("slot", pe=2), False),
        (Policy(rankfile="rf"), False),
    ],
)
def test_when_topology_decides(policy: Policy, decides: bool) -> None:
    assert topology_decides(policy) is decides
