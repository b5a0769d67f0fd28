"""Cpus as mpirun shows them, `[BB/..][../..]`, and the lines of --report-bindings.

Between brackets stands a socket, between slashes a core, and each letter is a hardware thread: B if it belongs to
what is shown.  As in mpirun 4.1, whose words scripts look for, a rank that is bound to all cpus of a node is reported
as not bound, and one that is really not bound is not reported.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.number_ranges import ranges

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.datamodel.node_report import Topology


def binding_lines(
    jobmap: JobMap, topologies: Mapping[str, Topology], pids: Mapping[str, int], unbound: Mapping[int, str]
) -> list[str]:
    """What --report-bindings prints to stderr, a line for each rank that is bound, in rank order.

    `[node1:4711] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]`, as mpirun 4.1.4.  `topologies` are whole ones
    and `pids` those of the agents, both by node name.  Ranks of the app contexts `unbound` get the reason instead.
    """
    lines = []
    for placement in jobmap.placements:
        if placement.cpus or placement.app in unbound:
            name = jobmap.nodes[placement.node].name
            what = bound_to(topologies.get(name), placement.cpus)
            if not placement.cpus:
                what = f"is not bound: {unbound[placement.app]} (--bind-to core would bind it)"
            lines.append(f"[{name}:{pids.get(name, 0)}] MCW rank {placement.rank} {what}")
    return lines


def bound_to(topology: Topology | None, cpus: Collection[int]) -> str:
    """`bound to socket 0[core 0[hwt 0-1]]: [BB/..]`, or that this is all there is; `cpus` are the kernel's numbers."""
    if topology is None or not set(cpus) <= set(topology.cpus):
        return f"bound to cpus {ranges(sorted(cpus))}"
    if set(cpus) == set(topology.cpus):
        return "is not bound (or bound to all available processors)"
    cores = ", ".join(
        f"socket {socket}[core {core}[hwt {ranges(threads)}]]" for socket, core, threads in _cores(topology, cpus)
    )
    return f"bound to {cores}: {brackets(topology, cpus)}"


def brackets(topology: Topology, cpus: Collection[int]) -> str:
    """`[BB/..][../..]`; B are these cpus, in the kernel's numbers."""
    text, before = "", (-1, -1)
    for cpu, socket, core in _rows(topology):
        if socket != before[0]:
            text += "][" if text else "["
        elif core != before[1]:
            text += "/"
        text += "B" if cpu in cpus else "."
        before = socket, core
    return text + "]" if text else ""


def _cores(topology: Topology, cpus: Collection[int]) -> list[tuple[int, int, list[int]]]:
    """Socket, core and the hardware threads, counted within the core, of each core that has some of these cpus."""
    found: dict[tuple[int, int], list[int]] = {}
    seen: dict[int, int] = {}  # hardware threads of each core so far
    for cpu, socket, core in _rows(topology):
        if cpu in cpus:
            found.setdefault((socket, core), []).append(seen.get(core, 0))
        seen[core] = seen.get(core, 0) + 1
    return [(socket, core, threads) for (socket, core), threads in found.items()]


def _rows(topology: Topology) -> Iterator[tuple[int, int, int]]:
    """Cpu, socket and core of each hardware thread; a machine that tells of no sockets is one."""
    sockets = topology.row("socket") or (0,) * len(topology.cpus)
    return zip(topology.cpus, sockets, topology.cpu_row(False))
