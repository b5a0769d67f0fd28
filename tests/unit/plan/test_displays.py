"""What the displays print, as golden files: options × the example hostfiles, and bindings × machines.

A wanted change is accepted with `--update-golden`, and reviewed as a diff.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import LAPTOP, NUMA_AROUND_SOCKETS, machine

from mslaunch.datamodel.jobmap import Allocation, JobMap, Node, Placement
from mslaunch.datamodel.node_report import Topology
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import LaunchError
from mslaunch.launcher.messages.display_tables import tables
from mslaunch.plan.binding import bind
from mslaunch.plan.displays import show_allocation, show_map, show_topology
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.pipeline import Placed, allocate
from mslaunch.plan.number_ranges import bounds, ranges
from mslaunch.plan.report_bindings import binding_lines, bound_to, brackets

FEW = settings(max_examples=50, deadline=None)  # a file is done within two seconds, on a busy machine too

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
HOSTFILES = sorted(path.name for path in (ROOT / "hostfiles").iterdir() if path.is_file())
POLICIES = {
    "all slots": (None, Policy()),
    "-np 5": (5, Policy()),
    "--map-by node": (None, Policy("node")),
    "-N 1 --bind-to core": (None, Policy("ppr", ((1, "node"),), bind_to="core")),
    "-np 9 --oversubscribe": (9, Policy(oversubscribe=True)),
    "-np 9 --oversubscribe --map-by node --bind-to core": (9, Policy("node", oversubscribe=True, bind_to="core")),
}
FOUR_CORES = machine("socket:1 core:4 thread:1").topology()

MACHINES = {
    "two-sockets": machine("socket:2 l3:1 core:4 thread:2", "far"),
    "numa-around-sockets": NUMA_AROUND_SOCKETS,
    "laptop": LAPTOP,
}
BINDINGS = {
    "-np 1": (1, Policy()),
    "-np 4": (4, Policy()),
    "-np 4 --map-by socket --bind-to core": (4, Policy("socket", bind_to="core")),
    "-np 4 --map-by slot:PE=2": (4, Policy("slot", pe=2)),
    "-np 3 --bind-to hwthread": (3, Policy(bind_to="hwthread")),
    "-np 3 --bind-to l3cache": (3, Policy(bind_to="l3cache")),
    "-np 3 --bind-to none": (3, Policy(bind_to="none")),
}


def rendered(name: str) -> str:
    """The allocation, and the map or the refusal for each policy."""
    text = (ROOT / "hostfiles" / name).read_text(encoding="utf-8")
    app = AppContext(("python", "train.py"), hostfile=name)
    allocation = allocate(Request((app,)), lambda path: text, "localhost".__eq__, "head0", cores=2)
    parts = [show_allocation(allocation)]
    allocation = allocation.with_cores({node.name: 4 for node in allocation.nodes})
    topologies = {node.name: FOUR_CORES for node in allocation.nodes}
    for title, (np, policy) in POLICIES.items():
        try:
            jobmap = map_job(Request((app._replace(np=np),), policy), allocation, topologies)
            shown = show_map(bind(jobmap, policy, topologies), [app])
        except LaunchError as error:
            shown = f"{error}\n"
        parts.append(f"# {title}\n{shown}")
    return "\n".join(parts)


def drawn(name: str) -> str:
    """A machine, and where each policy binds ranks on it, in all forms."""
    topology = MACHINES[name].topology()
    app = AppContext(("./a.out",))
    allocation = Allocation((Node("aa", len(topology.cpus), "-H"),), declared=True)
    parts = [show_topology("aa", topology)]
    for title, (np, policy) in BINDINGS.items():
        parts.append(f"\n# {title}\n")
        try:
            jobmap = map_job(Request((app._replace(np=np),), policy), allocation, {"aa": topology})
            jobmap = bind(jobmap, policy, {"aa": topology})
        except LaunchError as error:
            parts.append(f"{error}\n")
            continue
        parts += [show_map(jobmap, [app], how, {"aa": topology}) for how in ("table", "devel", "diffable")]
        parts += [line + "\n" for line in binding_lines(jobmap, {"aa": topology}, {"aa": 4711}, {})]
    return "".join(parts)


@pytest.mark.parametrize("name", HOSTFILES)
def test_the_maps_of_the_example_hostfiles(name: str, golden: Callable[[str, Path], None]) -> None:
    golden(rendered(name), GOLDEN / "maps" / f"{name}.txt")


@pytest.mark.parametrize("name", MACHINES)
def test_the_bindings_on_some_machines(name: str, golden: Callable[[str, Path], None]) -> None:
    golden(drawn(name), GOLDEN / "bindings" / f"{name}.txt")


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in (GOLDEN / "maps").iterdir()) == HOSTFILES
    assert sorted(path.stem for path in (GOLDEN / "bindings").iterdir()) == sorted(MACHINES)


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
        "  aa    2      0      0-1        'a b' ''",
        "               1      2-3        " + "x" * 47 + "…",
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


def test_the_table_has_the_allocation_of_mslaunch() -> None:
    allocation = Allocation((Node("aa", 1, "hf:1", user="joe"),), declared=True)
    app = AppContext(("x",), 1)
    placed = Placed(map_job(Request((app,)), allocation, {}), {})
    ours, theirs = (
        tables(Request((app,), display_allocation=True, display_map=how), allocation, placed, "1")
        for how in ("table", "map")
    )
    assert ours.startswith("allocation: 1 node, 1 slot\n") and "joe@aa" in ours and "\nmap: 1 rank" in ours
    assert "ALLOCATED NODES" in theirs and "JOB MAP" in theirs


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
    assert ranges(ranks, strides=True) == text


@FEW
@given(st.sets(st.integers(0, 60)))
def test_folded_ranks_say_the_same(ranks: set[int]) -> None:
    again: list[int] = []
    for part in filter(None, ranges(sorted(ranks), strides=True).split(",")):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        again += range(int(low), int(high or low) + 1, int(step or 1))
    assert again == sorted(ranks)


def on_one_node(*cpus: tuple[int, ...]) -> JobMap:
    return JobMap((Node("aa", 8, "-H"),), tuple(Placement(at, 0, 0, at, one) for at, one in enumerate(cpus)), 8)


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        (((0,), (1,), (2,)), "0-2, 1 each"),
        (((0, 8), (1, 9)), "0-1,8-9, 2 each"),
        (((3, 2),), "2-3"),
        (((0, 1), (0, 1), (2, 3)), "0-1 ×2 | 2-3"),
        (((0, 1), (0, 1)), "0-1 ×2"),
        (((0, 1), (1, 2)), "0-1 | 1-2"),
        (((0,), (1, 2)), "0 | 1-2"),
        (((0,), ()), "0 | -"),
        (((), ()), "not bound"),
    ],
)
def test_cpus_of_the_ranks_of_a_node(cpus: tuple[tuple[int, ...], ...], text: str) -> None:
    line = show_map(on_one_node(*cpus), [AppContext(("prog",))]).splitlines()[2]
    assert line.split(None, 3)[3].rpartition("  ")[0].strip() == text


TWO_SOCKETS = machine("socket:2 core:4 thread:2").topology()


@pytest.mark.parametrize(
    ("cpus", "text"),
    [  # recorded: mpirun 4.1.4 with HWLOC_SYNTHETIC="pack:2 core:4 pu:2"
        ((0, 1), "bound to socket 0[core 0[hwt 0-1]]: [BB/../../..][../../../..]"),
        ((8, 9), "bound to socket 1[core 4[hwt 0-1]]: [../../../..][BB/../../..]"),
        ((2,), "bound to socket 0[core 1[hwt 0]]: [../B./../..][../../../..]"),
        (
            (6, 7, 9),
            "bound to socket 0[core 3[hwt 0-1]], socket 1[core 4[hwt 1]]: [../../../BB][.B/../../..]",
        ),
        (tuple(range(16)), "is not bound (or bound to all available processors)"),
        ((16,), "bound to cpus 16"),
    ],
)
def test_a_binding_in_words(cpus: tuple[int, ...], text: str) -> None:
    assert bound_to(TWO_SOCKETS, cpus) == text


def test_only_bound_ranks_are_reported() -> None:
    lines = binding_lines(on_one_node((0, 1), (), (2, 3)), {"aa": TWO_SOCKETS}, {"aa": 7}, {})
    assert lines == [
        "[aa:7] MCW rank 0 bound to socket 0[core 0[hwt 0-1]]: [BB/../../..][../../../..]",
        "[aa:7] MCW rank 2 bound to socket 0[core 1[hwt 0-1]]: [../BB/../..][../../../..]",
    ]
    assert binding_lines(on_one_node((2, 3)), {}, {}, {}) == ["[aa:0] MCW rank 0 bound to cpus 2-3"]


def test_a_program_that_is_not_bound_by_default_says_why() -> None:
    lines = binding_lines(on_one_node(()), {"aa": TWO_SOCKETS}, {"aa": 7}, {0: "net.py names torch"})
    assert lines == ["[aa:7] MCW rank 0 is not bound: net.py names torch (--bind-to core would bind it)"]


@FEW
@given(st.sets(st.integers(0, 15)))
def test_brackets_hold_each_cpu_once(cpus: set[int]) -> None:
    text = brackets(TWO_SOCKETS, cpus)
    letters = [letter for letter in text if letter in "B."]
    assert {at for at, letter in enumerate(letters) if letter == "B"} == cpus
    assert text.replace("B", ".") == "[../../../..][../../../..]"


def test_a_map_of_some_cpus_is_drawn_on_the_whole_machine() -> None:
    jobmap, policy = on_one_node((6, 7)), Policy(cpu_set="3")
    jobmap = jobmap._replace(placements=(jobmap.placements[0]._replace(locale=("core", 0)),))
    line = show_map(jobmap, [AppContext(("prog",))], "devel", {"aa": TWO_SOCKETS}, policy).splitlines()[2]
    assert line.split() == ["0", "aa", "0", "core", "0", *["[../../../BB][../../../..]"] * 2, "prog"]


def test_a_machine_without_topology_is_shown_as_one_socket() -> None:
    bare = Topology((4, 5), ((0, 1), (), (), (), (), (), (), ()))
    assert brackets(bare, {5}) == "[./B]"
    assert bound_to(bare, {5}) == "bound to socket 0[core 1[hwt 0]]: [./B]"
    assert show_topology("aa", bare).splitlines()[1:] == ["  cores  cpus", "  0-1    4-5"]


@FEW
@given(st.sets(st.integers(0, 60)))
def test_ranges_are_equivalent_to_numbers(cpus: set[int]) -> None:
    parts = [part.split("-") for part in filter(None, ranges(sorted(cpus)).split(","))]
    assert [cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)] == sorted(cpus)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3", (3, 3)),
        (" 2 - 5 ", (2, 5)),
        ("5-2", None),
        ("-1", None),
        ("2-", None),
        ("", None),
        ("x", None),
        ("²", None),
    ],
)
def test_bounds(text: str, numbers: tuple[int, int] | None) -> None:
    assert bounds(text) == numbers


@FEW
@given(st.sets(st.integers(0, 50)))
def test_ranges_are_read_again(numbers: set[int]) -> None:
    found = [bounds(part) or (0, -1) for part in ranges(sorted(numbers)).split(",") if part]
    assert {number for low, high in found for number in range(low, high + 1)} == numbers


def test_the_ranks_of_each_node_as_intel_mpi_prints_them() -> None:
    """Seen of mpiexec.hydra 2021.18: -print-rank-map -hosts a,b -ppn 2 -n 5."""
    nodes = tuple(Node(name, 2, "-H") for name in "ab")
    request = Request((AppContext(("true",), 5),), Policy(map_by="rounds", oversubscribe=True))
    jobmap = map_job(request, Allocation(nodes, declared=True), {})
    assert show_map(jobmap, request.apps, "ranks") == "(a:0,1,4)\n(b:2,3)\n\n"
