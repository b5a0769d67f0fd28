"""The topology of a node as a record: its cpus, and what they share."""

from __future__ import annotations

from mslaunch.faststd import NamedTuple

#: what cpus may share, smallest first; a policy names one of these, a `Topology` has a row for each
LEVELS = ("hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "board")


class Topology(NamedTuple):
    """The cpus of a node that we may use, and what they share.

    `cpus` are the kernel's numbers of the hardware threads in logical order (board by board, socket by socket, …, core
    by core).  `objects` has a row for each of LEVELS: the logical number, from 0, of the object of that level that the
    cpu at this place is in; a row is empty if the machine has no such level (or does not tell).  Objects without a cpu
    that we may use do not count.
    """

    cpus: tuple[int, ...]
    objects: tuple[tuple[int, ...], ...]
    numa: tuple[int, ...] = ()  # the kernel's number of each NUMA node, by logical number; empty: unknown
