"""Binding by local rank: msrun's --bind_core and --bind_numa, on each host alike.

All numbers are the kernel's, as in taskset and numactl.  An even share is msrun's: the cpus in the kernel's order, cut
into as many runs as the host has ranks, the last one with what is left over.  Where there are fewer cpus or NUMA nodes
than ranks nothing is bound, as in msrun; only what somebody named and is not there is refused.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.number_ranges import ranges

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mslaunch.datamodel.jobmap import JobMap, Placement
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import LocalBinding


def bind_locally(jobmap: JobMap, local: LocalBinding, topologies: Mapping[str, Topology]) -> JobMap:
    """Fills `cpus` and `memory` of the placements, and the scheduler's cpus.

    Raises UsageError for cpus and nodes that a host has not.
    """
    found: dict[int, Placement] = {}
    for node, mine in zip(jobmap.nodes, jobmap.by_node()):
        host = _LocalHost(node.name, topologies.get(node.name), local, len(mine))
        found.update((row.rank, host.bound(row)) for row in mine)
    name = jobmap.nodes[jobmap.service_node].name
    scheduler = _LocalHost(name, topologies.get(name), local, 0).cpus_of(local.scheduler)
    return jobmap._replace(
        placements=tuple(found[row.rank] for row in jobmap.placements), service_cpus=tuple(sorted(scheduler))
    )


class _LocalHost:
    """One host: its cpus and NUMA nodes, and what they are by the kernel's numbers."""

    def __init__(self, name: str, topology: Topology | None, local: LocalBinding, ranks: int) -> None:
        self._name = name
        self._local = local
        self._cpus = sorted(topology.cpus) if topology else []
        self._nodes = _nodes(topology) if topology else {}
        self._shares = _shares(self._cpus, ranks) if local.even_cpus else []
        self._own = sorted(self._nodes)[:ranks] if local.even_numa and len(self._nodes) >= ranks else []

    def bound(self, row: Placement) -> Placement:
        """The rank with what it gets."""
        local = self._local
        at = row.local_rank
        node = (self._own[at],) if at < len(self._own) else ()
        memory = self._checked(_at(local.memory, at), self._nodes, "NUMA node") or node
        cpus = _at(self._shares, at) or self._checked(_at(local.cpus, at), self._cpus, "cpu")
        cpus = cpus or self.cpus_of(_at(local.numa, at) or node)
        return row._replace(cpus=tuple(sorted(cpus)), memory=tuple(sorted(memory)))

    def cpus_of(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """The cpus of these NUMA nodes."""
        return tuple(cpu for node in self._checked(nodes, self._nodes, "NUMA node") for cpu in self._nodes[node])

    def _checked(self, wanted: Sequence[int], there: Collection[int], what: str) -> tuple[int, ...]:
        missing = [number for number in wanted if number not in there]
        if missing:
            has = f"there: {ranges(sorted(there), ', ')}" if there else f"it does not tell its {what}s"
            todo = f"{has}; the numbers are those of lscpu"
            raise UsageError(f"{self._name} has no {what} {missing[0]} that we may use", self._local.where, todo)
        return tuple(wanted)


def _at(rows: Sequence[Sequence[int]], at: int) -> tuple[int, ...]:
    return tuple(rows[at]) if at < len(rows) else ()


def _shares(cpus: Sequence[int], ranks: int) -> list[Sequence[int]]:
    """Runs of equal length, the last one with the rest; none if there are fewer cpus than ranks."""
    each = len(cpus) // ranks if ranks else 0
    ends = [*(each * (at + 1) for at in range(ranks - 1)), len(cpus)] if each else []
    return [cpus[each * at : end] for at, end in enumerate(ends)]


def _nodes(topology: Topology) -> dict[int, list[int]]:
    """The cpus of each NUMA node that we may use; none where the kernel knows of no nodes."""
    found: dict[int, list[int]] = {}
    for cpu, number in zip(topology.cpus, topology.row("numa") if topology.numa else ()):
        found.setdefault(topology.numa[number], []).append(cpu)
    return found
