"""Machines that do not exist: hwloc's HWLOC_SYNTHETIC texts, and the `Topology` of the same machine.

mpirun maps and binds for the machine in HWLOC_SYNTHETIC, so results for large machines can be had on a small one.
Of hwloc's notation this reads what the tests write: `pack:2 l3:1 core:4 pu:2`, largest first, each number per object
of the level before; `numa:2` or an attached `[numa]` (one for each object of the level before it); no caches of
instructions; `pu:2(indexes=0,4,1,5)`, the kernel's numbers in logical order.  Without numa, it is one NUMA domain.
"""

from __future__ import annotations

import re

from mslaunch.datamodel.node_report import LEVELS, Topology

NAMES = {
    "package": "socket",
    "pack": "socket",
    "socket": "socket",
    "numa": "numa",
    "numanode": "numa",
    "node": "numa",
    "l3": "l3cache",
    "l3cache": "l3cache",
    "l2": "l2cache",
    "l2cache": "l2cache",
    "l1": "l1cache",
    "l1d": "l1cache",
    "l1cache": "l1cache",
    "core": "core",
    "pu": "hwthread",
}
IGNORED = ("group", "die")  # levels that hwloc has and Open MPI 4.1 has not

_LEVEL = re.compile(r"(?P<name>[a-z0-9]+):(?P<count>\d+)(\(indexes=(?P<indexes>[\d,]+)\))?")


def topology(text: str) -> Topology:
    """The machine that HWLOC_SYNTHETIC=`text` makes; raises ValueError for what is not understood."""
    counts: dict[str, int] = {}  # objects of a level in all
    objects, kernel = 1, ""
    for word in text.lower().split():
        if word == "[numa]":
            _put(counts, "numa", objects)
            continue
        level = _LEVEL.fullmatch(word)
        if level is None or level["name"] not in (*NAMES, *IGNORED):
            raise ValueError(f"cannot read {word!r} of {text!r}")
        objects *= int(level["count"])
        kernel = level["indexes"] or ""
        if level["name"] in NAMES:
            _put(counts, NAMES[level["name"]], objects)
    if counts.get("hwthread") != objects:
        raise ValueError(f"{text!r} does not end in pu:N")
    counts.setdefault("numa", 1)
    cpus = tuple(map(int, kernel.split(","))) if kernel else tuple(range(objects))
    if sorted(cpus) != list(range(objects)):
        raise ValueError(f"the indexes of {text!r} are not {objects} different ones")
    rows = (tuple(at * counts.get(level, 0) // objects for at in range(objects)) for level in LEVELS)
    return Topology(cpus, tuple(row if level in counts else () for level, row in zip(LEVELS, rows)))


def _put(counts: dict[str, int], level: str, objects: int) -> None:
    if level in counts:
        raise ValueError(f"a level {level} inside another one cannot be distinguished")
    counts[level] = objects
