"""The topologies of the nodes that ranks are mapped onto: their cores, caches, NUMA nodes and sockets.

A node whose topology is not known yet is taken for a flat machine, which has an object of every level, so that a first
map can be made of slots alone; `mapper.topology_decides` says whether its nodes are the final ones.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.errors import AllocationError, counted
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.request import Policy

    Locale = tuple[str, int]  # level and logical number

WHOLE: Locale = ("", 0)  #: the locale of a rank that was mapped to its node and to nothing smaller
_PARTS = frozenset(("hwthread", "core", "l1cache", "l2cache"))


def flat(slots: int) -> Topology:
    """A machine of one socket and one NUMA node with a core of one hardware thread for each slot."""
    each = tuple(range(slots))
    return Topology(each, tuple(each if level in _PARTS else (0,) * slots for level in LEVELS))


class TopologyView:
    """The topologies of the nodes of an allocation, by index."""

    def __init__(self, nodes: Sequence[Node], topologies: Mapping[str, Topology]) -> None:
        flats = {
            slots: flat(slots) for slots in {max(1, node.slots or 1) for node in nodes if node.name not in topologies}
        }
        self.nodes = nodes
        self._known = topologies
        self.topologies = [topologies.get(node.name) or flats[max(1, node.slots or 1)] for node in nodes]
        self._objects: dict[tuple[int, str], list[Locale]] = {}  # by id of a topology, which nodes that are alike share

    def is_known(self, node: int) -> bool:
        """Whether this node's topology is its own, and not a flat one in its place."""
        return self.nodes[node].name in self._known

    def count(self, node: int, level: str) -> int:
        """How many objects of this level the node has."""
        return len(self.objects(node, level))

    def objects(self, node: int, level: str) -> Sequence[Locale]:
        """The objects of this level that the node has."""
        topology = self.topologies[node]
        found = self._objects.get((id(topology), level))
        if found is None:
            numbers = range(max(topology.row(level), default=-1) + 1)
            found = self._objects[id(topology), level] = [(level, number) for number in numbers]
        return found

    def inside(self, node: int, locale: Locale) -> list[int]:
        """The places in `Topology.cpus` of the hardware threads of one object, or of the whole node."""
        level, number = locale
        if not level:
            return list(range(len(self.topologies[node].cpus)))
        return [at for at, other in enumerate(self.topologies[node].row(level)) if other == number]

    def check_cpus(self, node: int, locales: Sequence[Locale], policy: Policy) -> None:
        """Raises AllocationError if an object that ranks are mapped to has fewer cpus than PE=n asks for.

        Where ranks are bound, so must the node itself.  What is not known yet is not checked.
        """
        if not self.is_known(node):
            return
        for locale in dict.fromkeys(locales):
            cpu_row = self.topologies[node].cpu_row(policy.hwthread_cpus)
            have = len({cpu_row[place] for place in self.inside(node, locale)})
            if have >= policy.pe or (locale == WHOLE and policy.bind_to == "none"):
                continue
            cpus, name = counted(have, "hardware thread" if policy.hwthread_cpus else "core"), self.nodes[node].name
            raise AllocationError(
                f"{f'{locale[0]} {locale[1]} of {name}' if locale[0] else name} has {cpus}, "
                f"and each rank is to have {policy.pe}",
                f"PE={policy.pe}",
                "lower PE, or map by something larger, as --map-by socket or slot",
            )
