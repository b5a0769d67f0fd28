"""Worlds in few words, and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.node_plan import NodePlan, World
from mslaunch.plan.folded_worlds import folded_names, folded_rows, pack_runs
from mslaunch.protocol import control
from mslaunch.protocol.alike_plans import AlikePlans

NAMES = st.one_of(
    st.builds(
        "{}{:0{}}{}".format, st.sampled_from(["n", "r1n", ""]), st.integers(0, 12), st.integers(1, 3), st.just("")
    ),
    st.sampled_from(["node", "10.0.0.9", "10.0.0.10", "fe80::1", "a.b-2", "a.b-3.c", "a²"]),
)
ROWS = st.lists(st.integers(0, 30), unique=True, max_size=4).map(sorted).map(tuple)


def again(world: World) -> World:
    return control.unpack_plan(AlikePlans().pack(NodePlan((), (), (), world=world))).world


def regular(nodes: int, each: int = 8) -> World:
    ranks = tuple(tuple(range(node * each, node * each + each)) for node in range(nodes))
    return World("1", hosts=tuple(f"node{node:06}" for node in range(nodes)), ranks=ranks)


@settings(max_examples=200, deadline=None)
@given(st.lists(NAMES, max_size=12), st.lists(ROWS, max_size=12))
def test_any_world_survives(names: list[str], rows: list[tuple[int, ...]]) -> None:
    world = World("1", hosts=tuple(names), ranks=tuple(rows))
    assert again(world) == world


@pytest.mark.parametrize("nodes", [2, 999, 10_000])
def test_a_world_of_hosts_that_are_counted_takes_the_same_words_whatever_its_size(nodes: int) -> None:
    world = regular(nodes)
    assert folded_names(world.hosts) == [f"node/000000/{nodes}/"]
    assert folded_rows(world.ranks) == [f"0:8:1/{nodes}/8"]
    assert again(world) == world


def test_neighbours_are_folded_whatever_is_behind_their_number() -> None:
    names = ["r1n8-ib", "r1n9-ib", "r1n10-ib", "r2n1-ib", "login", "9", "10"]
    assert folded_names(names) == ["r1n/8/3/-ib", "r2n1-ib", "login", "/9/2/"]


def test_ranks_dealt_round_the_nodes_are_one_word() -> None:
    assert folded_rows([(0, 100, 200), (1, 101, 201), (2, 102, 202)]) == ["0:3:100/3/1"]


def test_nodes_that_differ_from_their_neighbours_are_words_of_their_own() -> None:
    assert folded_rows([(0, 1), (2, 3), (4,), (), (5, 6), (9, 10)]) == ["0:2:1/2/2", "4:1:1/1/0", "/1/0", "5:2:1/2/4"]


def test_runs_are_short() -> None:
    assert pack_runs(range(0, 64000, 1000)) == "0:64:1000"
    assert pack_runs([]) == ""
