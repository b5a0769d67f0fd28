"""Hosts as records: a hostfile's lines, the nodes that may be used, and the allocation that they make."""

from __future__ import annotations

from mslaunch.faststd import NamedTuple


class HostLine(NamedTuple):
    """One host as a hostfile line or an entry of -H names it; `node[01-16]` has become sixteen of these."""

    name: str  # without user@ and without the brackets of an IPv6 address
    slots: int | None = None  # None: not said
    max_slots: int | None = None
    user: str | None = None
    port: int | None = None
    source: str = ""  # who said so: "hosts:3", "-H"
    spare: bool = False  # it replaces a host that is lost


class Node(NamedTuple):
    """A host we may use."""

    name: str
    slots: int | None  # None: as many as the host has cores, known when its agent says HELLO
    source: str  # where the number of slots came from: "hosts:3", "-H", "cores"
    max_slots: int | None = None
    user: str | None = None
    port: int | None = None
    local: bool = False  # reached by fork
    spare: bool = False  # gets ranks only in place of a host that was lost


class RankLine(NamedTuple):
    """One line of a rankfile."""

    rank: int
    host: str  # as it is written
    cpus: str  # its slot=, without blanks
    source: str = ""  # "ranks:3"
    node: int = -1  # index into Allocation.nodes, once that is known


class Allocation(NamedTuple):
    """The nodes and slots given to us, in order."""

    nodes: tuple[Node, ...]
    declared: bool  # False: plain local mode, nobody named a host
    apps: tuple[tuple[int, ...], ...] = ()  # per app context: indices of its nodes; empty: all may use all
    sequences: tuple[tuple[int, ...], ...] = ()  # per app context: its nodes line by line, repeats kept (--map-by seq)
    ranks: tuple[RankLine, ...] = ()  # the lines of the rankfile, which makes the allocation
    spares: tuple[Node, ...] = ()  # hosts that stand by; none of them is among `nodes`, and nobody calls them yet
