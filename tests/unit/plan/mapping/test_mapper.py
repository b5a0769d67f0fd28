"""Maps: recorded placements of mpirun, the rules it does not have, and what holds for every map."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Allocation, JobMap, Node
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import AllocationError, LaunchError, UsageError
from mslaunch.plan.mapping.mapper import MAPPERS, map_job, mapper_of
from mslaunch.plan.mapping.pipeline import allocate
from mslaunch.plan.mapping.slot_counts import MAX_RANKS

DEFAULT = Policy()
FEW = settings(max_examples=50, deadline=None)  # a file is done within two seconds, on a busy machine too

CASES = json.loads((Path(__file__).parents[2] / "data" / "placements.json").read_text())


def nodes(*slots: int, most: tuple[int | None, ...] = (), declared: bool = True) -> Allocation:
    """Nodes a, b, c… with so many slots."""
    limits = most or (None,) * len(slots)
    return Allocation(
        tuple(Node(chr(97 + at), many, f"hf:{at + 1}", limits[at]) for at, many in enumerate(slots)), declared
    )


def each(many: int, **more: Any) -> Policy:
    """-N."""
    return Policy("ppr", ((many, "node"),), **more)


def request(*nps: int | None, policy: Policy = DEFAULT) -> Request:
    return Request(tuple(AppContext(("x",), np) for np in nps), policy)


def ranks(jobmap: JobMap) -> dict[str, list[int]]:
    """Node name -> its ranks."""
    found: dict[str, list[int]] = {}
    for placement in jobmap.placements:
        found.setdefault(jobmap.nodes[placement.node].name, []).append(placement.rank)
    return found


def counts(jobmap: JobMap) -> list[int]:
    return [sum(placement.node == at for placement in jobmap.placements) for at in range(len(jobmap.nodes))]


# ---------------------------------------------------------------------------------------------------- recorded cases


def replay(case: dict[str, Any]) -> JobMap:
    policy = case.get("policy", {})
    files = case.get("files", {})
    apps = tuple(
        AppContext(("x",), app.get("np"), hosts=tuple(app.get("H", ())), hostfile=app.get("hostfile"))
        for app in case["apps"]
    )
    each = policy.get("N")
    asked = Request(
        apps,
        Policy(
            "ppr" if each else policy.get("by", ""),
            ((each, "node"),) if each else (),
            oversubscribe=policy.get("over"),
        ),
        default_hostfile=case.get("default"),
    )

    def read_text(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return str(files[path])

    here = ("localhost", "127.0.0.1", "head0", "head0.cluster.local")
    allocation = allocate(asked, read_text, here.__contains__, "head0", cores=2)
    return map_job(asked, allocation.with_cores({node.name: 2 for node in allocation.nodes}), {})


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_recorded_cases_give_the_same_map(case: dict[str, Any]) -> None:
    """`map` is the result of mpirun 4.1.4 (null: it refused), or ours where `differs` gives a reason."""
    if case["map"] is None:
        with pytest.raises(LaunchError) as caught:
            replay(case)
        assert caught.value.code == 1
    else:
        assert ranks(replay(case)) == case["map"]


# ------------------------------------------------------------------------------------------------------------- rules

OVER = Policy(oversubscribe=True)


@pytest.mark.parametrize(
    ("slots", "np", "want"),
    [
        ((2, 2, 2), 7, [3, 2, 2]),
        ((2, 2, 2), 8, [3, 3, 2]),
        ((2, 2, 2), 13, [5, 4, 4]),
        ((4, 2, 1), 9, [5, 3, 1]),
        ((4, 2, 1), 11, [6, 3, 2]),
        ((4, 2, 1), 3, [3]),
    ],
)
def test_the_share_of_an_oversubscribed_job(slots: tuple[int, ...], np: int, want: list[int]) -> None:
    jobmap = map_job(request(np, policy=OVER), nodes(*slots), {})
    assert counts(jobmap) == want
    assert jobmap.oversubscribed == (np > sum(slots))
    assert jobmap.slots == sum(slots)


@pytest.mark.parametrize(
    ("np", "want"),
    [(6, {"a": [0, 3, 5], "b": [1, 4], "c": [2]}), (9, {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5, 8]})],
)
def test_by_node_is_even_only_when_the_slots_do_not_suffice(np: int, want: dict[str, list[int]]) -> None:
    assert ranks(map_job(request(np, policy=Policy("node", oversubscribe=True)), nodes(4, 2, 1), {})) == want


@pytest.mark.parametrize(
    ("slots", "np", "want"),
    [((9, 3, 9), 11, [5, 3, 3]), ((1, 5, 5), 8, [1, 4, 3]), ((1, 1, 9, 9), 13, [1, 1, 6, 5]), ((4, 2, 1), 2, [1, 1])],
)
def test_by_node_the_shares_are_worked_out_pass_by_pass(slots: tuple[int, ...], np: int, want: list[int]) -> None:
    assert counts(map_job(request(np, policy=Policy("node")), nodes(*slots), {})) == want


@pytest.mark.parametrize(
    ("policy", "nps", "want"),
    [
        (OVER, (3, 4), {"a": [0, 1, 3], "b": [2, 4, 5, 6]}),
        (OVER, (5, 2), {"a": [0, 1, 2, 5], "b": [3, 4, 6]}),
        (Policy("node", oversubscribe=True), (3, 3), {"a": [0, 2, 3], "b": [1, 4, 5]}),
        (each(1), (None, None), {"a": [0, 2], "b": [1, 3]}),
        (each(1), (2, 2), {"a": [0, 2], "b": [1, 3]}),
        (Policy(), (3, 1), {"a": [0, 1], "b": [2, 3]}),
    ],
)
def test_a_program_continues_where_the_previous_one_ended(
    policy: Policy, nps: tuple[int | None, ...], want: dict[str, list[int]]
) -> None:
    jobmap = map_job(request(*nps, policy=policy), nodes(2, 2), {})
    assert ranks(jobmap) == want
    assert [placement.app for placement in jobmap.placements] == sorted(p.app for p in jobmap.placements)


def test_programs_stay_on_their_hosts() -> None:
    allocation = nodes(2, 2, 2)._replace(apps=((0, 1, 2), (2,), (0, 1, 2)))
    jobmap = map_job(request(1, 2, 2), allocation, {})
    assert ranks(jobmap) == {"a": [0, 3], "c": [1, 2], "b": [4]}
    assert [node.name for node in jobmap.nodes] == ["a", "b", "c"]
    with pytest.raises(AllocationError):
        map_job(request(1, 3), allocation, {})
    assert ranks(map_job(request(1, None), allocation, {})) == {"a": [0], "c": [1, 2]}


def test_a_pattern_without_np_applies_to_every_node() -> None:
    """-N 1 A : -N 1 B, where the only slot of c is A's: mpirun refuses as well."""
    asked = request(None, None, policy=each(1))
    assert counts(map_job(asked, nodes(2, 2, 2), {})) == [2, 2, 2]
    with pytest.raises(AllocationError, match=r"1 rank \(1:node\) for c, 0 free \(the programs before took 3\)"):
        map_job(asked, nodes(4, 2, 1), {})
    assert counts(map_job(request(None, 1, policy=each(1)), nodes(1, 2, 2), {})) == [1, 2, 1]  # with np, what is free


def test_max_slots_is_kept() -> None:
    allocation = nodes(2, 1, most=(3, 2))
    assert counts(map_job(request(5, policy=OVER), allocation, {})) == [3, 2]
    for policy in (OVER, Policy("node", oversubscribe=True)):
        with pytest.raises(AllocationError) as caught:
            map_job(request(6, policy=policy), allocation, {})
        assert "max_slots" in caught.value.todo
        assert "2, at most 3" in caught.value.todo
    with pytest.raises(AllocationError):
        map_job(request(None, policy=each(3, oversubscribe=True)), allocation, {})


def test_ranks_that_do_not_fit_on_a_full_node_go_to_others() -> None:
    assert counts(map_job(request(10, policy=OVER), nodes(2, 2, 2, most=(2, 3, None)), {})) == [2, 3, 5]


@pytest.mark.parametrize(("np", "over"), [(2, False), (3, True), (64, True)])
def test_slots_of_this_host_alone_do_not_count(np: int, over: bool) -> None:
    jobmap = map_job(request(np), nodes(2, declared=False), {})
    assert (counts(jobmap), jobmap.oversubscribed) == ([np], over)


def test_only_used_nodes_are_in_the_map() -> None:
    jobmap = map_job(request(2, policy=each(1)), nodes(2, 2, 2), {})
    assert [node.name for node in jobmap.nodes] == ["a", "b"]
    assert jobmap.slots == 6


@pytest.mark.parametrize(
    ("asked", "allocation"),
    [
        (request(0), nodes(2)),
        (request(-1), nodes(2)),
        (request(MAX_RANKS + 1, policy=OVER), nodes(2)),
        (request(MAX_RANKS, 1, policy=OVER), nodes(2)),
        (request(None), nodes(*[65536] * 20)),
        (request(3), nodes(2)),
        (request(2, 1), nodes(2)),
        (request(1, None), nodes(2)),
        (request(None, policy=each(0)), nodes(2)),
        (request(None, policy=each(MAX_RANKS, oversubscribe=True)), nodes(2, 2)),
        (request(None, policy=each(3)), nodes(4, 2)),
        (request(3, policy=each(1)), nodes(4, 2)),
        (request(1), Allocation((Node("a", None, "hf:1"),), declared=True)),
    ],
)
def test_maps_that_are_refused(asked: Request, allocation: Allocation) -> None:
    with pytest.raises(AllocationError) as caught:
        map_job(asked, allocation, {})
    assert caught.value.todo


def test_the_error_for_missing_slots_names_the_sources_of_numbers() -> None:
    allocation = Allocation((Node("aa", 2, "hosts:3"), Node("node17", 16, "cores of node17")), declared=True)
    with pytest.raises(AllocationError) as caught:
        map_job(request(4, 30), allocation, {})
    assert str(caught.value).splitlines() == [
        "not enough slots: 30 ranks asked for, 14 slots free (the programs before took 4)",
        "  node    slots  from",
        "  aa      2      hosts:3",
        "  node17  16     cores of node17",
        "  ask for fewer ranks, give the hosts more slots (slots=N, -H HOST:N), or add --oversubscribe",
    ]


# -------------------------------------------------------------------------------------------------------- properties


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Request, Allocation]:
    many = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    most = tuple(draw(st.none() | st.integers(one, 9)) for one in many)
    policy = Policy(draw(st.sampled_from(["", "slot", "node"])), oversubscribe=draw(st.none() | st.booleans()))
    if draw(st.booleans()):
        policy = each(draw(st.integers(1, 3)), oversubscribe=policy.oversubscribe)
    nps = draw(st.lists(st.none() | st.integers(1, 12), min_size=1, max_size=3))
    return request(*nps, policy=policy), nodes(*many, most=most, declared=draw(st.booleans()))


@FEW
@given(jobs())
def test_invariants_of_every_map(job: tuple[Request, Allocation]) -> None:
    asked, allocation = job
    wanted = asked.policy.oversubscribe
    over = not allocation.declared if wanted is None else wanted
    try:
        jobmap = map_job(asked, allocation, {})
    except AllocationError:
        if not asked.policy.ppr and None not in (nps := [app.np for app in asked.apps]):
            room = [MAX_RANKS if node.max_slots is None else node.max_slots for node in allocation.nodes]
            have = sum(room) if over else sum(node.slots or 0 for node in allocation.nodes)
            assert sum(np or 0 for np in nps) > have
        return
    check_numbers(jobmap, asked)
    names = [node.name for node in allocation.nodes]
    assert [node.name for node in jobmap.nodes] == [name for name in names if name in ranks(jobmap)]
    full = [count > (node.slots or 0) for node, count in zip(jobmap.nodes, counts(jobmap))]
    assert jobmap.oversubscribed == any(full)
    assert over or not any(full)
    assert all(
        node.max_slots is None or count <= node.max_slots for node, count in zip(jobmap.nodes, counts(jobmap))
    ) or (not over)
    assert jobmap.slots == sum(node.slots or 0 for node in allocation.nodes)


def check_numbers(jobmap: JobMap, asked: Request) -> None:
    """Ranks are 0..n-1, local ranks and apps rise, and every app context has the ranks it asked for."""
    placements = jobmap.placements
    assert [placement.rank for placement in placements] == list(range(len(placements)))
    assert [placement.app for placement in placements] == sorted(placement.app for placement in placements)
    for at in range(len(jobmap.nodes)):
        here = [placement for placement in placements if placement.node == at]
        assert [placement.local_rank for placement in here] == list(range(len(here)))
        assert not any(placement.cpus for placement in here)
    for number, app in enumerate(asked.apps):
        assert app.np in (None, sum(placement.app == number for placement in placements))


@FEW
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 100))
def test_the_share_is_even(many: list[int], np: int) -> None:
    """By slot and oversubscribed, what nodes get above their slots differs by one at most, the first have more."""
    jobmap = map_job(request(np, policy=OVER), nodes(*many), {})
    above = [count - (node.slots or 0) for node, count in zip(jobmap.nodes, counts(jobmap))]
    if np >= sum(many):
        assert max(above) - min(above) <= 1
        assert above == sorted(above, reverse=True)


@pytest.mark.parametrize("word", MAPPERS)
def test_each_row_is_a_mapper(word: str) -> None:
    mapper: Any = mapper_of(word)
    assert list(inspect.signature(mapper).parameters) == ["job"]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no mapper 'tree'"):
        map_job(Request((AppContext(("x",), 1),), Policy(map_by="tree")), Allocation((Node("a", 1, ""),), False), {})
