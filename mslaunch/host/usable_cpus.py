"""The cpus that this process may use, and how many cores they are.

Linux's lists of cpus in /sys are read here for `read_topology` as well.  An object (a core, a cache, a socket) is known
by its smallest cpu.  Errors of files are ignored; a host without these files has a core for each cpu.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.system_files import head_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    Parts = dict[int, int]  # cpu -> the smallest cpu of its object

#: files that name the cpus of a core; the first that is there counts, and one without "list" is a mask
_CORE = ("core_cpus_list", "thread_siblings_list", "thread_siblings")  # the first since Linux 5.3
_LAST = 0xFFFF  #: no kernel has a cpu beyond it


def usable_cpus() -> set[int]:
    """The kernel's numbers of the cpus that this process may use; its cgroup counts."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def count_cores(usable: Collection[int], root: str = "/sys") -> int:
    """How many cores have at least one of the `usable` cpus; as cheap as can be, for every launch asks.

    A host that runs one thread a core says so in one file (`smt/active`, Linux 4.19); elsewhere it is one file a core.
    """
    cpu_root = f"{root}/devices/system/cpu"
    if first_line(f"{cpu_root}/smt/active") == "0":
        return len(usable)
    cores = find_cores(sorted(usable), cpu_root)
    return len({cores[cpu] for cpu in usable if cpu in cores}) or len(usable)


def cores_here(hwthreads: bool = False) -> int:
    """How many cores this process may use, at least in part; or how many hardware threads."""
    usable = usable_cpus()
    return len(usable) if hwthreads else count_cores(usable)


def first_line(path: str) -> str:
    """Of a small file (behind it, some kernels have put a NUL); "" if it cannot be read."""
    return head_of(path, 1 << 16).decode("ascii", "replace").partition("\n")[0].strip()


def members(folder: str, names: Sequence[str]) -> list[int]:
    """The cpus, in order, that the first of these files names; [] if it names none in a way we know."""
    for name in names:
        text = first_line(f"{folder}/{name}")
        if text:
            try:
                return _listed(text) if name.endswith("list") else _masked(text)
            except ValueError:
                break
    return []


def _listed(text: str) -> list[int]:
    """`0-3,8`: the kernel's list of cpus, in ascending order."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        few = range(int(first), int(last or first) + 1)
        if not few or few[-1] > _LAST or (found and found[-1] >= few[0]):
            raise ValueError(text)
        found += few
    return found


def _masked(text: str) -> list[int]:
    """`00000000,000000ff`: the same as a bit for each cpu."""
    mask = int(text.replace(",", ""), 16)
    return [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]


def enter(parts: Parts, cpu: int, together: list[int]) -> bool:
    """Note an object and all its members; False for a list that does not even name the cpu it is for."""
    if cpu not in together:
        return False
    for other in together:
        parts.setdefault(other, together[0])
    return True


def siblings(cpus: Sequence[int], cpu_root: str, names: Sequence[str]) -> Parts:
    """The objects of one kind in cpu*/topology; a cpu that another one has named is not asked."""
    parts: Parts = {}
    for cpu in cpus:
        if cpu not in parts:
            enter(parts, cpu, members(f"{cpu_root}/cpu{cpu}/topology", names))
    return parts


def find_cores(cpus: Sequence[int], cpu_root: str) -> Parts:
    """The cores; empty if nothing tells.

    AMD's family 15h calls two cores that share some of their parts siblings, but gives each a number; they count as
    two, as in hwloc.
    """
    cores = siblings(cpus, cpu_root, _CORE)
    for cpu, first in cores.items():
        if cpu != first:
            one, other = (first_line(f"{cpu_root}/cpu{which}/topology/core_id") for which in (first, cpu))
            return cores if one == other else {cpu: cpu for cpu in cores}
    return cores
