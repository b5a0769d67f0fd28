"""The tables of mpirun 4.1, to the letter (as its 4.1.4 prints them)."""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Allocation, JobMap, Node, Placement
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.plan.displays import allocation_text, map_text

TWO_CORES = Topology((0, 1), tuple((0, 1) if level in ("hwthread", "core") else (0, 0) for level in LEVELS))
NODES = (Node("aa", 2, "hosts:1", max_slots=4), Node("bb", 2, "-H"))


def test_a_map() -> None:
    rows = (Placement(0, 0, 0, 0, (0,)), Placement(1, 0, 0, 1, (0, 1)), Placement(2, 1, 1, 0))
    assert map_text(JobMap(NODES, rows, 4), {"aa": TWO_CORES, "bb": TWO_CORES}, 4711).splitlines() == [
        " Data for JOB [4711,1] offset 0 Total slots allocated 4",
        "",
        " ========================   JOB MAP   ========================",
        "",
        " Data for node: aa\tNum slots: 2\tMax slots: 4\tNum procs: 2",
        " \tProcess OMPI jobid: [4711,1] App: 0 Process rank: 0 Bound: socket 0[core 0[hwt 0]]:[B/.]",
        " \tProcess OMPI jobid: [4711,1] App: 0 Process rank: 1 Bound: UNBOUND",
        "",
        " Data for node: bb\tNum slots: 2\tMax slots: 0\tNum procs: 1",
        " \tProcess OMPI jobid: [4711,1] App: 1 Process rank: 2 Bound: N/A",
        "",
        " =============================================================",
    ]


def test_an_allocation() -> None:
    assert allocation_text(Allocation(NODES, declared=True)).splitlines() == [
        "",
        "======================   ALLOCATED NODES   ======================",
        "\taa: flags=0x13 slots=2 max_slots=4 slots_inuse=0 state=UNKNOWN",
        "\tbb: flags=0x11 slots=2 max_slots=0 slots_inuse=0 state=UP",
        "=================================================================",
    ]


def test_spares_are_shown_behind_the_nodes() -> None:
    spare = Node("zz", 3, "hosts:9", spare=True)
    lines = allocation_text(Allocation(NODES, declared=True, spares=(spare,))).splitlines()
    assert lines[-2] == "\tzz: flags=0x13 slots=3 max_slots=0 slots_inuse=0 state=SPARE"
