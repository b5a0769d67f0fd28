"""Topologies read from /sys trees of machines that tests/unit/machines.py describes."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import (
    ARM,
    EPYC,
    FOUR_SOCKETS,
    LAPTOP,
    LAPTOP_LOW_POWER,
    MACHINES,
    POWER,
    SMALL_VM,
    XEON,
    XEON_DEALT,
    Machine,
    listed,
    machine,
    masked,
    write,
    write_sys,
)

from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.host.read_topology import read_topology
from mslaunch.host.usable_cpus import count_cores

FEW = settings(max_examples=30, deadline=None)


def rows(topology: Topology) -> dict[str, tuple[int, ...]]:
    return dict(zip(LEVELS, topology.objects))


def flat(cpus: Collection[int]) -> Topology:
    """A core for each cpu, one socket."""
    each, one = tuple(range(len(cpus))), (0,) * len(cpus)
    return Topology(tuple(sorted(cpus)), (each, each, (), (), (), one, one, ()))


def nested(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Objects that overlap are nested."""
    met = set(zip(one, other))
    mine, theirs = Counter(first for first, _ in met), Counter(second for _, second in met)
    return all(mine[first] == 1 or theirs[second] == 1 for first, second in met)


def check(topology: Topology, usable: Collection[int]) -> None:
    """The invariants that users of a topology rely on."""
    assert set(topology.cpus) <= set(usable) and bool(topology.cpus) == bool(usable)
    assert len(set(topology.cpus)) == len(topology.cpus)
    found = rows(topology)
    assert len(topology.objects) == len(LEVELS)
    assert all(len(found[level]) == len(topology.cpus) for level in ("hwthread", "core", "numa", "socket"))
    for level, row in found.items():
        assert len(row) in (0, len(topology.cpus)), level
        assert list(dict.fromkeys(row)) == list(range(len(set(row)))), f"{level}: from 0, in order"
        runs = [number for at, number in enumerate(row) if at == 0 or row[at - 1] != number]
        assert len(runs) == len(set(row)), f"{level}: the cpus of an object are together"
        assert all(nested(row, other) for other in found.values()), level


# --- whole machines


@pytest.mark.parametrize("name", MACHINES)
def test_the_topology_of_a_machine(name: str, tmp_path: Path) -> None:
    made = MACHINES[name]
    root = write_sys(made, tmp_path)
    topology = read_topology(set(made.cpus), root)
    assert topology == made.topology()
    check(topology, made.cpus)
    assert count_cores(set(made.cpus), root) == len(set(rows(topology)["core"]))


def test_the_numbers_of_a_xeon(tmp_path: Path) -> None:
    """Siblings are 16 apart; the order is core by core."""
    topology = read_topology(set(range(32)), write_sys(XEON, tmp_path))
    assert topology.cpus[:4] == (0, 16, 1, 17) and topology.cpus[-2:] == (15, 31)
    assert rows(topology)["socket"] == (0,) * 16 + (1,) * 16
    assert rows(topology)["core"] == tuple(at // 2 for at in range(32))
    assert rows(topology)["numa"] == (0,) * 32
    assert rows(topology)["board"] == ()


def test_cpus_that_alternate_between_sockets(tmp_path: Path) -> None:
    topology = read_topology(set(range(32)), write_sys(FOUR_SOCKETS, tmp_path))
    assert topology.cpus[:8] == (0, 4, 8, 12, 16, 20, 24, 28)
    assert rows(topology)["socket"] == tuple(at // 8 for at in range(32))


def test_small_cores_have_one_thread_and_share_their_l2(tmp_path: Path) -> None:
    found = rows(read_topology(set(range(20)), write_sys(LAPTOP, tmp_path)))
    assert found["core"] == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert found["l2cache"] == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7)


@pytest.mark.parametrize("usable", [range(10), [8, 9], [0, 8], [5, 9]])
def test_cpus_may_lack_a_cache_that_others_have(usable: Collection[int], tmp_path: Path) -> None:
    """Two low-power cores are outside of the L3: their L2 counts as the L3, whichever cpu is read first."""
    root = write_sys(LAPTOP_LOW_POWER, tmp_path)
    topology = read_topology(set(usable), root)
    check(topology, usable)
    l3 = [0 if cpu < 8 else 1 for cpu in topology.cpus]
    assert list(rows(topology)["l3cache"]) == ([] if min(usable) == 8 else l3)


def test_cores_listed_later_may_have_one_more_cache(tmp_path: Path) -> None:
    made = machine("socket:1 l3:0 core:2 thread:1 + l3:1 core:2 thread:1")
    assert rows(read_topology({0, 1, 2, 3}, write_sys(made, tmp_path)))["l3cache"] == (0, 1, 2, 2)


# --- affinity masks


@pytest.mark.parametrize(
    ("made", "usable"),
    [
        (XEON, {17, 18, 2, 31}),  # half a core, a whole one, and half of the other socket's last
        (XEON, set(range(8, 16))),  # no cpu of socket 0
        (XEON_DEALT, {1, 3, 5, 7}),  # of socket 1 alone
        (XEON_DEALT, {5, 6, 30, 31}),
        (EPYC, {4, 5, 6, 7, 68, 127}),
        (ARM, {63, 30}),
    ],
)
def test_a_mask_that_cuts_objects(made: Machine, usable: set[int], tmp_path: Path) -> None:
    """The remaining objects keep their order and get new numbers."""
    root = write_sys(made, tmp_path)
    topology = read_topology(usable, root)
    assert topology == made.topology(usable)
    assert count_cores(usable, root) == len(set(rows(topology)["core"]))


def test_the_order_is_that_of_whole_objects(tmp_path: Path) -> None:
    """Socket 0 is the one with cpu 0, also for those who may not use it (hwloc)."""
    topology = read_topology({1, 14}, write_sys(XEON_DEALT, tmp_path))
    assert topology.cpus == (14, 1)


def test_offline_threads_are_ignored(tmp_path: Path) -> None:
    """SMT-8 with two threads a core in use, as POWER hosts often are; their directories are empty."""
    kept = {cpu for cpu in POWER.cpus if cpu % 8 in (0, 4)}
    root = write_sys(POWER, tmp_path, offline=set(POWER.cpus) - kept)
    assert read_topology(kept, root) == POWER.topology(kept)
    assert read_topology(set(POWER.cpus), root) == POWER.topology(kept), "what has no files is not there"
    assert count_cores(set(POWER.cpus), root) == 4


# --- incomplete information


def test_a_small_machine_without_caches(tmp_path: Path) -> None:
    assert read_topology({0}, write_sys(SMALL_VM, tmp_path, leave_out={"cache", "node"})) == flat({0})


@pytest.mark.parametrize("left_out", ["cache", "node", "smt"])
def test_a_missing_part_leaves_the_rest_intact(left_out: str, tmp_path: Path) -> None:
    expected = rows(XEON_DEALT.topology())
    if left_out == "cache":
        expected.update(l1cache=(), l2cache=(), l3cache=())
    elif left_out == "node":
        expected.update(numa=(0,) * 32)
    root = write_sys(XEON_DEALT, tmp_path, leave_out={left_out})
    found = rows(read_topology(set(XEON_DEALT.cpus), root))
    assert {level: len(set(row)) for level, row in found.items()} == {
        level: len(set(row)) for level, row in expected.items()
    }
    assert count_cores({0, 2, 8, 10}, root) == 2


def test_each_cpu_is_a_core_without_a_topology_directory(tmp_path: Path) -> None:
    made = machine("socket:1 core:4 thread:2")
    root = write_sys(made, tmp_path, leave_out={"topology", "cache", "node"})
    assert read_topology({1, 2, 7}, root) == flat({1, 2, 7})
    assert count_cores({1, 2, 7}, root) == 3


def test_each_cpu_is_a_core_without_sys(tmp_path: Path) -> None:
    assert read_topology({3, 1}, str(tmp_path / "none")) == flat({1, 3})
    assert count_cores({3, 1}, str(tmp_path / "none")) == 2
    assert read_topology(set(), str(tmp_path)) == flat(())
    assert count_cores(set(), str(tmp_path)) == 0


@pytest.mark.parametrize("made", [XEON, FOUR_SOCKETS, LAPTOP], ids=["xeon", "four-sockets", "laptop"])
def test_files_of_an_old_kernel_are_read(made: Machine, tmp_path: Path) -> None:
    """They have other names, masks instead of some lists, and nothing about SMT."""
    root = write_sys(made, tmp_path, old=True)
    assert read_topology(set(made.cpus), root) == made.topology()
    assert count_cores(set(made.cpus), root) == len(set(rows(made.topology())["core"]))


# --- oddities


def test_memory_without_cpus_is_no_numa_node(tmp_path: Path) -> None:
    root = write_sys(XEON_DEALT, tmp_path)
    write(tmp_path / "devices/system/node/node9", cpulist="")
    os.rename(tmp_path / "devices/system/node/node0", tmp_path / "devices/system/node/node10")
    assert read_topology(set(XEON_DEALT.cpus), root) == XEON_DEALT.topology()._replace(numa=(10, 1, 2, 3))


def test_two_kinds_of_memory_for_the_same_cpus_are_one_node(tmp_path: Path) -> None:
    root = write_sys(XEON, tmp_path)
    write(tmp_path / "devices/system/node/node1", cpulist="0-31")
    assert read_topology(set(XEON.cpus), root) == XEON.topology()


def test_cpus_without_a_node_are_the_rest_of_their_socket(tmp_path: Path) -> None:
    made = machine("socket:2 numa:1 core:2 thread:1")
    root = write_sys(made, tmp_path)
    os.unlink(tmp_path / "devices/system/node/node0/cpulist")
    assert read_topology({0, 1, 2, 3}, root) == made.topology()._replace(numa=()), "it has no number of the kernel's"


def test_siblings_with_core_numbers_are_cores(tmp_path: Path) -> None:
    """AMD's family 15h: two cores with a common L2 are called siblings, but have numbers of their own."""
    made = machine("socket:1 l3:1 core:2 thread:2")
    root = write_sys(made, tmp_path)
    for cpu in range(4):
        write(tmp_path / f"devices/system/cpu/cpu{cpu}/topology", core_id=str(cpu))
        write(tmp_path / f"devices/system/cpu/cpu{cpu}/cache/index0", shared_cpu_list=str(cpu))
    found = rows(read_topology({0, 1, 2, 3}, root))
    assert found["core"] == found["l1cache"] == (0, 1, 2, 3)
    assert found["l2cache"] == (0, 0, 1, 1)
    assert count_cores({0, 1, 2, 3}, root) == 4


def test_clusters_decide_the_order(tmp_path: Path) -> None:
    made = machine("socket:1 cluster:2 core:2 thread:1")
    interleaved = made._replace(cpus=(0, 2, 1, 3))
    assert read_topology({0, 1, 2, 3}, write_sys(interleaved, tmp_path)).cpus == (0, 2, 1, 3)


def test_a_nul_after_the_text_is_ignored(tmp_path: Path) -> None:
    """Linux 5.15 and 5.16 have one in the lists of node and topology."""
    root = write_sys(XEON_DEALT, tmp_path)
    for path in [*tmp_path.rglob("cpulist"), *tmp_path.rglob("package_cpus_list")]:
        path.write_bytes(path.read_bytes() + b"\0")
    assert read_topology(set(XEON_DEALT.cpus), root) == XEON_DEALT.topology()


def test_a_level_that_contradicts_another_is_left_out(tmp_path: Path) -> None:
    made = machine("socket:2 l3:1 core:2 thread:1")
    root = write_sys(made, tmp_path)
    for cpu, shared in ((0, "0"), (1, "1-2"), (2, "1-2"), (3, "3")):
        write(tmp_path / f"devices/system/cpu/cpu{cpu}/cache/index3", shared_cpu_list=shared)
    write(tmp_path / "devices/system/node/node0", cpulist="0,2")
    write(tmp_path / "devices/system/node/node1", cpulist="1,3")
    found = rows(read_topology({0, 1, 2, 3}, root))
    assert found["socket"] == (0, 0, 1, 1)
    assert found["l3cache"] == () and found["numa"] == (0, 0, 0, 0)


# --- cost


def files_read(monkeypatch: pytest.MonkeyPatch, function: object, *args: object) -> int:
    opened: list[object] = []
    real = os.open

    def counting(path: object, *more: object, **how: object) -> int:
        opened.append(path)
        return real(path, *more, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", counting)
        function(*args)  # type: ignore[operator]
    return len(opened)


def test_each_object_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 cores with two threads: a file for each core, L1 and L2; and few for what is larger."""
    root = write_sys(EPYC, tmp_path)
    assert files_read(monkeypatch, read_topology, set(EPYC.cpus), root) < 3 * 64 + 60
    assert files_read(monkeypatch, count_cores, set(EPYC.cpus), root) == 64 + 3


def test_without_smt_cores_are_counted_from_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_sys(ARM, tmp_path)
    assert files_read(monkeypatch, count_cores, set(ARM.cpus), root) == 1


# --- anything


@st.composite
def any_machine(draw: st.DrawFn) -> Machine:
    few = st.integers(1, 3)
    words = [f"socket:{draw(few)}", f"numa:{draw(few)}"]
    if draw(st.booleans()):
        words.reverse()
    if draw(st.booleans()):
        words = [word for word in words if word.startswith("socket")]
    words += [f"{level}:{draw(st.integers(1, 2))}" for level in ("die", "l3", "cluster", "l2") if draw(st.booleans())]
    made = machine(
        " ".join([*words, f"core:{draw(st.integers(1, 2))}", f"thread:{draw(st.integers(1, 2))}"]),
        draw(st.sampled_from(["near", "far", "dealt", "odd"])),
    )
    return made if len(made.cpus) <= 24 else machine("socket:2 numa:2 core:2 thread:2")


@FEW
@given(any_machine(), st.data())
def test_any_machine_with_any_mask(made: Machine, data: st.DataObject) -> None:
    usable = data.draw(st.sets(st.sampled_from(made.cpus), min_size=1))
    with tempfile.TemporaryDirectory() as folder:
        root = write_sys(made, Path(folder))
        topology = read_topology(usable, root)
        check(topology, usable)
        assert topology == made.topology(usable)
        assert count_cores(usable, root) == len(set(rows(topology)["core"]))


NONSENSE = st.binary(max_size=6) | st.sampled_from(
    [b"", b"0", b"1", b"0-1", b"0-3", b"1,0", b"2-1", b"0-4294967295", b"-1", b"0,0", b"ffffffff", b"Unified", b"\xff"]
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight cpus; tests that change files restore them."""
    root = tmp_path_factory.mktemp("sys")
    write_sys(machine("socket:2 numa:2 l3:1 cluster:1 core:1 thread:2"), root)
    return root


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_garbage_in_the_files(tree: Path, data: st.DataObject) -> None:
    """Files of any content, or directories in their place."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    usable = data.draw(st.sets(st.integers(0, 9), min_size=1))
    spoiled = data.draw(st.dictionaries(st.sampled_from(files), st.none() | NONSENSE, max_size=12))
    kept = {path: path.read_bytes() for path in spoiled}
    try:
        for path, content in spoiled.items():
            path.unlink()
            if content is None:
                path.mkdir()
            else:
                path.write_bytes(content)
        check(read_topology(usable, str(tree)), usable)
        assert 1 <= count_cores(usable, str(tree)) <= len(usable)
    finally:
        for path, content in kept.items():
            if path.is_dir():
                path.rmdir()
            path.write_bytes(content)


@FEW
@given(st.sets(st.integers(0, 200)))
def test_lists_and_masks_as_the_kernel_writes_them(cpus: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "devices/system/cpu/cpu0/topology"
        for name, text in (("core_cpus_list", listed(cpus | {0})), ("thread_siblings", masked(cpus | {0}))):
            write(here, **{name: text})
            assert rows(read_topology(cpus | {0}, folder))["core"] == (0,) * len(cpus | {0})
            os.unlink(here / name)
