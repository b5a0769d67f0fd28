"""The tables of --display-map and --display-allocation, as golden files: options × the example hostfiles.

A wanted change is accepted with `--update-golden`, and reviewed as a diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import LaunchError
from mslaunch.model import Allocation, AppContext, JobMap, Node, Placement, Policy, Request
from mslaunch.plan.allocation import allocate, with_cores
from mslaunch.plan.mapping import map_job
from mslaunch.plan.show import fold_ranks, show_allocation, show_map

FEW = settings(max_examples=50, deadline=None)  # a file is done within two seconds, on a busy machine too

ROOT = Path(__file__).parents[2]
HOSTFILES = sorted(path.name for path in (ROOT / "hostfiles").iterdir() if path.is_file())
POLICIES = {
    "all slots": (None, Policy()),
    "-np 5": (5, Policy()),
    "--map-by node": (None, Policy("node")),
    "-N 1 --bind-to core": (None, Policy(per_node=1, bind_to="core")),
    "-np 9 --oversubscribe": (9, Policy(oversubscribe=True)),
    "-np 9 --oversubscribe --map-by node --bind-to core": (9, Policy("node", None, True, "core")),
}


def rendered(name: str) -> str:
    """The allocation, and the map or the refusal for each policy."""
    text = (ROOT / "hostfiles" / name).read_text(encoding="utf-8")
    app = AppContext(("python", "train.py"), hostfile=name)
    allocation = allocate(Request((app,)), lambda path: text, "localhost".__eq__, "head0", cores=2)
    parts = [show_allocation(allocation)]
    allocation = with_cores(allocation, {node.name: 4 for node in allocation.nodes})
    for title, (np, policy) in POLICIES.items():
        try:
            shown = show_map(map_job(Request((app._replace(np=np),), policy), allocation), [app])
        except LaunchError as error:
            shown = f"{error}\n"
        parts.append(f"# {title}\n{shown}")
    return "\n".join(parts)


@pytest.mark.parametrize("name", HOSTFILES)
def test_the_maps_of_the_example_hostfiles(name: str, request: pytest.FixtureRequest) -> None:
    golden = ROOT / "tests" / "golden" / "maps" / f"{name}.txt"
    shown = rendered(name)
    if request.config.getoption("--update-golden", default=False):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in (ROOT / "tests" / "golden" / "maps").iterdir()) == HOSTFILES


def test_two_programs_and_their_bindings() -> None:
    jobmap = JobMap(
        (Node("aa", 2, "-H"), Node("bb", None, "-H")),
        (Placement(0, 0, 0, 0, (0, 1)), Placement(1, 1, 0, 1, (2, 3)), Placement(2, 1, 1, 0)),
        slots=3,
        oversubscribed=True,
    )
    assert show_map(jobmap, [AppContext(("a b", "")), AppContext(("x" * 60,))]).splitlines() == [
        "map: 3 ranks on 2 nodes, 3 slots in all, oversubscribed",
        "  node  slots  ranks  cpus       program",
        "  aa    2      0      0+1        'a b' ''",
        "               1      2+3        " + "x" * 47 + "…",
        "  bb    ?      2      not bound  " + "x" * 47 + "…",
    ]


def test_ways_to_reach_a_node() -> None:
    allocation = Allocation(
        (
            Node("head0", 2, "cores", local=True),
            Node("aa", None, "-H", user="joe", port=2222),
            Node("2001:db8::1", 1, "-H", port=22),
        ),
        declared=True,
    )
    assert show_allocation(allocation).splitlines() == [
        "allocation: 3 nodes, 3 slots and the cores of the others",
        "  node         slots          most  reached           slots from",
        "  head0        2              -     here              cores",
        "  aa           a slot a core  -     joe@aa:2222       -H",
        "  2001:db8::1  1              -     [2001:db8::1]:22  -H",
    ]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([0, 1, 2, 5], "0-2,5"),
        ([0, 4], "0,4"),
        ([0, 4, 8, 12], "0-12/4"),
        ([0, 4, 8, 9, 10], "0-8/4,9-10"),
        ([7, 7], "7,7"),
    ],
)
def test_fold_ranks(ranks: list[int], text: str) -> None:
    assert fold_ranks(ranks) == text


@FEW
@given(st.sets(st.integers(0, 60)))
def test_folded_ranks_say_the_same(ranks: set[int]) -> None:
    again: list[int] = []
    for part in filter(None, fold_ranks(sorted(ranks)).split(",")):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        again += range(int(low), int(high or low) + 1, int(step or 1))
    assert again == sorted(ranks)
