"""The topology of this host: what the cpus that we may use share, read from /sys in as few files as possible.

Order and numbers are those that hwloc gives the same machine, and with it Open MPI (checked against lstopo 2.9 on
recorded machines): among the parts of one larger object, the one with the smallest cpu comes first, counted over all
its cpus, also those that we may not use.  What /sys does not have (virtual machines, containers), or has in
contradictions, is left out, down to one socket with a core for each cpu.
"""

from __future__ import annotations

import os
from itertools import count

from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.usable_cpus import enter, find_cores, first_line, members, siblings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mslaunch.host.usable_cpus import Parts

#: files that name the cpus of an object, as `cpus.members` takes them
_SOCKET = ("package_cpus_list", "core_siblings_list", "core_siblings")
_CACHE = ("shared_cpu_list", "shared_cpu_map")
_NODE = ("cpulist", "cpumap")
#: no levels of ours, but hwloc sorts by them
_GROUPS = ("cluster_cpus_list", "die_cpus_list", "book_siblings_list", "drawer_siblings_list")


def read_topology(usable: Collection[int], root: str = "/sys") -> Topology:
    """What the `usable` cpus share (`os.sched_getaffinity(0)`, which knows of cgroups); never raises.

    Memory without cpus is no NUMA node, and of several nodes with the same cpus (fast and large memory) the first
    counts; without any, the host is one.  A cpu without a cache of a level that others have, or without a node, counts
    as in one with those of its next smaller cache or core, or of its socket.  No file tells of boards.
    """
    cpu_root = f"{root}/devices/system/cpu"
    cpus = sorted(usable)
    cores = find_cores(cpus, cpu_root)
    if cores:
        cpus = [cpu for cpu in cpus if cpu in cores]  # one that has lost its files has just gone offline
    one = dict.fromkeys(cpus, 0)
    levels = {"core": cores or {cpu: cpu for cpu in cpus}}
    _add(levels, "socket", siblings(cpus, cpu_root, _SOCKET), cpus)
    levels.setdefault("socket", one)
    for name in _GROUPS:
        _add(levels, name, _group(cpus, cpu_root, name, cores), cpus)
    smaller = levels["core"]
    for level, caches in _caches(cpus, cpu_root).items():
        if caches:
            _add(levels, level, {**smaller, **caches}, cpus)
            smaller = levels.get(level, smaller)
    numa, names = _numa(f"{root}/devices/system/node")
    if numa:
        _add(levels, "numa", {**levels["socket"], **numa}, cpus)
    if levels.setdefault("numa", one) is one:
        names = {}
    return _numbered(cpus, levels, names)


# --- what the files say


def _group(cpus: Sequence[int], cpu_root: str, name: str, cores: Parts) -> Parts:
    """Dies or clusters; none if the first cpu's is just its core, as the kernel says where it knows of none."""
    if not cpus:
        return {}
    together = members(f"{cpu_root}/cpu{cpus[0]}/topology", (name,))
    if not together or {cores.get(cpu) for cpu in together} == {cores.get(cpus[0])}:
        return {}
    return siblings(cpus, cpu_root, (name,))


def _caches(cpus: Sequence[int], cpu_root: str) -> dict[str, Parts]:
    """The data and unified caches by level, the smallest first.

    What a number in cpu*/cache stands for is asked once for all cpus; some may have fewer of them.
    """
    found: dict[str, Parts] = {"l1cache": {}, "l2cache": {}, "l3cache": {}}
    kinds: list[str] = []
    for cpu in cpus:
        new = not kinds  # whoever first names a cpu's last cache also looks for a next one
        for index in count():
            folder = f"{cpu_root}/cpu{cpu}/cache/index{index}"
            if index == len(kinds):
                kind = _cache_kind(folder) if new else ""
                if not kind:
                    break
                kinds.append(kind)
            parts = found.get(kinds[index])
            if parts is not None:
                new = cpu not in parts and enter(parts, cpu, members(folder, _CACHE))
    return found


def _cache_kind(folder: str) -> str:
    """One of LEVELS, another word for what is none of them, "" if there is no such cache."""
    level = first_line(f"{folder}/level")
    return level and (f"l{level}cache" if first_line(f"{folder}/type") in ("Data", "Unified") else "instructions")


def _numa(node_root: str) -> tuple[Parts, dict[int, int]]:
    """The nodes that have cpus, and the kernel's number of each."""
    parts: Parts = {}
    kernels: dict[int, int] = {}
    try:
        names = os.listdir(node_root)
    except OSError:
        names = []
    for number in sorted(int(name[4:]) for name in names if name.startswith("node") and name[4:].isdecimal()):
        together = members(f"{node_root}/node{number}", _NODE)
        for cpu in together:
            parts.setdefault(cpu, together[0])
            kernels.setdefault(together[0], number)
    return parts, kernels


# --- what it comes to


def _add(levels: dict[str, Parts], level: str, parts: Parts, cpus: Sequence[int]) -> None:
    """Believe a level that knows every cpu, and whose objects lie within or around those that we believe already."""
    if all(cpu in parts for cpu in cpus):
        row = [parts[cpu] for cpu in cpus]
        if all(_nest(row, [other[cpu] for cpu in cpus]) for other in levels.values()):
            levels[level] = parts


def _nest(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether any two objects of two levels are apart, or one is in the other."""
    if one == other:
        return True
    pairs = set(zip(one, other))
    split, torn = _repeated(first for first, _ in pairs), _repeated(second for _, second in pairs)
    return not any(first in split and second in torn for first, second in pairs)


def _repeated(numbers: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    twice: set[int] = set()
    for number in numbers:
        (twice if number in seen else seen).add(number)
    return twice


def _numbered(cpus: Sequence[int], levels: Mapping[str, Parts], kernels: Mapping[int, int]) -> Topology:
    """The cpus in logical order, and rows with numbers that count from 0 along it; `kernels` numbers NUMA nodes.

    A cpu's place is told by what it is in, from the largest to the smallest, each by its smallest cpu.
    """
    chains: dict[int, list[tuple[int, int, int]]] = {cpu: [] for cpu in cpus}
    for place, parts in enumerate(levels.values()):
        sizes: dict[int, int] = {}
        for first in parts.values():
            sizes[first] = sizes.get(first, 0) + 1
        for cpu, chain in chains.items():
            chain.append((-sizes[parts[cpu]], place, parts[cpu]))
    order = sorted(cpus, key=lambda cpu: [first for *_, first in sorted(chains[cpu])])
    rows = {"hwthread": tuple(range(len(order)))}
    for level, parts in levels.items():
        numbers: dict[int, int] = {}
        rows[level] = tuple(numbers.setdefault(parts[cpu], len(numbers)) for cpu in order)
    nodes = dict.fromkeys(levels["numa"][cpu] for cpu in order)
    numa = tuple(kernels[first] for first in nodes) if all(first in kernels for first in nodes) else ()
    return Topology(tuple(order), tuple(rows.get(level, ()) for level in LEVELS), numa)
