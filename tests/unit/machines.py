"""Machines described in one line, and the /sys that Linux would show for them.

`socket:2 numa:2 l3:4 core:4 thread:2` is two sockets with two NUMA nodes each, four L3 caches a node, four cores a
cache, two threads a core.  After a `+`, levels that are not named again are continued: `socket:1 l3:1 core:6 thread:2 +
l2:2 core:4` is a hybrid processor whose eight small cores share two L2 caches by four, all under the one L3; `l3:0`
would leave them out of it.  L1 and L2 belong to each core unless they are named.  `Machine.topology` is computed from
the description, not from the files, so it can be compared with what is read from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mslaunch.datamodel.node_report import LEVELS, Topology

ROWS = {"core": "core", "l1cache": "l1", "l2cache": "l2", "l3cache": "l3", "numa": "numa", "socket": "socket"}
SIBLINGS = {"core_cpus": "core", "cluster_cpus": "cluster", "die_cpus": "die", "package_cpus": "socket"}
OLDER = {"core_cpus": "thread_siblings", "package_cpus": "core_siblings"}
CACHES = (("l1", 1, "Data"), ("l1", 1, "Instruction"), ("l2", 2, "Unified"), ("l3", 3, "Unified"))


Groups = dict[tuple[str, int], list[int]]


class Machine(NamedTuple):
    """Hardware threads in logical order, each by what it is in, and the kernel's number of each."""

    places: tuple[Mapping[str, int], ...]
    cpus: tuple[int, ...]

    def groups(self, present: Collection[int]) -> Groups:
        """The cpus in each object, which is a level and a number."""
        found: Groups = {}
        for cpu, place in zip(self.cpus, self.places):
            for part in place.items() if cpu in present else ():
                found.setdefault(part, []).append(cpu)
        return found

    def topology(self, usable: Collection[int] | None = None) -> Topology:
        """What `read_topology` must find for those cpus; for machines on which all cpus have the same levels."""
        kept = [(cpu, place) for cpu, place in zip(self.cpus, self.places) if usable is None or cpu in usable]
        rows: dict[str, tuple[int, ...]] = {"hwthread": tuple(range(len(kept)))}
        for row, level in ROWS.items():
            if all(level in place for _, place in kept):
                rows[row] = _dense(place[level] for _, place in kept)
        numa = tuple(dict.fromkeys(place["numa"] for _, place in kept)) if "numa" in rows else (0,)
        rows.setdefault("numa", (0,) * len(kept))
        return Topology(tuple(cpu for cpu, _ in kept), tuple(rows.get(level, ()) for level in LEVELS), numa)


def _dense(numbers: Iterable[int]) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(number, len(seen)) for number in numbers)


def machine(words: str, numbers: str = "near") -> Machine:
    """The machine that `words` describe.

    `numbers` is how the kernel numbers its cpus: "near" the threads of a core in a row; "far" the second threads of all
    cores behind the first of all; "dealt" one to each socket in turn; "odd" near, with gaps.
    """
    places: list[dict[str, int]] = []
    many: Counter[str] = Counter()

    def grow(levels: list[tuple[str, int]], inside: dict[str, int]) -> None:
        if not levels:
            own = -1 - inside["core"]  # no number of a cache that is named
            places.append({"l1": own, "l2": own, **inside})
            return
        (level, times), *smaller = levels
        if not times:
            grow(smaller, {name: number for name, number in inside.items() if name != level})
        for _ in range(times):
            many[level] += 1
            grow(smaller, {**inside, level: many[level] - 1})

    for part in words.split("+"):
        levels = [(level, int(times)) for level, _, times in (word.partition(":") for word in part.split())]
        new = {level for level, _ in levels} | {"l1", "l2", "thread"}
        grow(levels, {level: number for level, number in (places[-1] if places else {}).items() if level not in new})
    return Machine(tuple(places), _numbers(places, numbers))


def _numbers(places: list[dict[str, int]], how: str) -> tuple[int, ...]:
    if how == "odd":
        return tuple(3 * at + 5 for at in range(len(places)))
    within = {"near": None, "far": "core", "dealt": "socket"}[how]
    turns: Counter[int] = Counter()
    turn = []
    for place in places:
        turn.append(turns[place[within]] if within else 0)
        if within:
            turns[place[within]] += 1
    order = sorted(range(len(places)), key=lambda at: turn[at])
    return tuple(order.index(at) for at in range(len(places)))


def listed(cpus: Iterable[int]) -> str:
    """The kernel's list: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def masked(cpus: Iterable[int]) -> str:
    """The kernel's mask: `00000001,000000ff`."""
    text = f"{sum(1 << cpu for cpu in cpus):x}"
    text = text.rjust(-(-len(text) // 8) * 8, "0")
    return ",".join(text[at : at + 8] for at in range(0, len(text), 8))


def write_sys(
    made: Machine, root: Path, offline: Collection[int] = (), leave_out: Collection[str] = (), old: bool = False
) -> str:
    """The tree below `root`, as `read_topology` takes it.

    `leave_out`: cache, topology, node, smt.  `old`: as before Linux 4.19, with masks where some kernels had no lists.
    """
    groups = made.groups(set(made.cpus) - set(offline))
    system = root / "devices" / "system"
    for cpu, place in zip(made.cpus, made.places):
        here = system / "cpu" / f"cpu{cpu}"
        here.mkdir(parents=True)
        if cpu in offline:
            continue
        if "topology" not in leave_out:
            _write_siblings(place, groups, here / "topology", old)
        if "cache" not in leave_out:
            _write_caches(place, groups, here / "cache", old)
    if "node" not in leave_out:
        nodes = {number: cpus for (level, number), cpus in groups.items() if level == "numa"}
        for number, cpus in (nodes or {0: made.cpus}).items():
            write(system / "node" / f"node{number}", cpulist=listed(cpus))
    if "smt" not in leave_out and not old:
        several = any(len(cpus) > 1 for (level, _), cpus in groups.items() if level == "core")
        write(system / "cpu" / "smt", active=str(int(several)))
    return str(root)


def write(folder: Path, **files: str) -> None:
    """Files of one line."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def _write_siblings(place: Mapping[str, int], groups: Groups, folder: Path, old: bool) -> None:
    write(folder, core_id=str(place["core"] % 4), physical_package_id=str(place["socket"]))
    for name, level in SIBLINGS.items():
        found = level if level in place else "core"  # what the kernel says where there is no such thing
        cpus = groups[found, place[found]]
        if not old:
            write(folder, **{f"{name}_list": listed(cpus)})
        elif name in OLDER:
            write(folder, **{OLDER[name]: masked(cpus)})


def _write_caches(place: Mapping[str, int], groups: Groups, folder: Path, old: bool) -> None:
    for index, (level, number, kind) in enumerate(CACHES):
        if level in place:
            cpus = groups[level, place[level]]
            shared = {"shared_cpu_map": masked(cpus)} if old else {"shared_cpu_list": listed(cpus)}
            write(folder / f"index{index}", level=str(number), type=kind, **shared)


#: a machine of each kind that is different in some way
XEON = machine("socket:2 l3:1 core:8 thread:2", "far")
XEON_DEALT = machine("socket:2 l3:1 numa:2 core:4 thread:2", "dealt")
EPYC = machine("socket:2 numa:4 l3:2 core:4 thread:2", "far")
EPYC_8 = machine("socket:2 numa:4 l3:1 core:8 thread:1")
LAPTOP = machine("socket:1 l3:1 core:6 thread:2 + l2:2 core:4 thread:1")
LAPTOP_LOW_POWER = machine("socket:1 l3:1 core:2 thread:2 + l2:1 core:4 thread:1 + l3:0 l2:1 core:2 thread:1")
FOUR_SOCKETS = machine("socket:4 l3:1 core:4 thread:2", "dealt")
ARM = machine("socket:2 numa:2 l3:1 cluster:4 core:4 thread:1")
POWER = machine("socket:2 numa:1 core:2 l3:1 l2:1 l1:2 thread:4")
NUMA_AROUND_SOCKETS = machine("numa:2 socket:2 l3:1 core:2 thread:1")
DIES = machine("socket:2 die:2 l3:1 core:2 thread:2", "far")
SMALL_VM = machine("socket:1 core:1 thread:1")

MACHINES = {
    "xeon": XEON,
    "xeon-dealt": XEON_DEALT,
    "epyc": EPYC,
    "epyc-8": EPYC_8,
    "laptop": LAPTOP,
    "four-sockets": FOUR_SOCKETS,
    "arm": ARM,
    "power": POWER,
    "numa-around-sockets": NUMA_AROUND_SOCKETS,
    "dies": DIES,
    "odd": machine("socket:2 numa:2 l3:1 core:2 thread:2", "odd"),
    "small-vm": SMALL_VM,
}
