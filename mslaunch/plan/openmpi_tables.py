"""The tables of mpirun 4.1's --display-map and --display-allocation, to the letter, since scripts read them.

The flags of a node are bits of Open MPI's: 1 daemon launched, 2 location verified, 16 slots given.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.binding_tables import bound_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.datamodel.jobmap import Allocation, JobMap, Node, Placement
    from mslaunch.datamodel.node_report import Topology


def allocation_text(allocation: Allocation) -> str:
    """As --display-allocation; slots of a node that has not been asked yet are 0.  Spares, which are ours, follow."""
    rows = [f"\t{node.name}: {_node(node)}" for node in (*allocation.nodes, *allocation.spares)]
    return "\n".join(["", f"{'=' * 22}   ALLOCATED NODES   {'=' * 22}", *rows, "=" * 65, ""])


def _node(node: Node) -> str:
    by_option = node.source.startswith("-H")
    flags = 0x1 | (0 if by_option else 0x2) | (0 if node.source.startswith("cores") else 0x10)
    state = "SPARE" if node.spare else "UP" if by_option or node.local else "UNKNOWN"
    return f"flags={flags:#x} slots={node.slots or 0} max_slots={node.max_slots or 0} slots_inuse=0 state={state}"


def map_text(jobmap: JobMap, topologies: Mapping[str, Topology], job: int) -> str:
    """As --display-map; `job` is the number that stands for the job, `topologies` are whole ones, by node name."""
    lines = [
        f" Data for JOB [{job},1] offset 0 Total slots allocated {jobmap.slots}",
        "",
        f" {'=' * 24}   JOB MAP   {'=' * 24}",
    ]
    by_node: list[list[Placement]] = [[] for _ in jobmap.nodes]
    for placement in jobmap.placements:
        by_node[placement.node].append(placement)
    for node, here in zip(jobmap.nodes, by_node):
        if not here:  # the services', which mpirun does not have
            continue
        slots = f"Num slots: {node.slots or 0}\tMax slots: {node.max_slots or 0}\tNum procs: {len(here)}"
        lines += ["", f" Data for node: {node.name}\t{slots}"]
        for placement in here:
            what = f"App: {placement.app} Process rank: {placement.rank}"
            lines.append(
                f" \tProcess OMPI jobid: [{job},1] {what} Bound: {_bound(placement, topologies.get(node.name))}"
            )
    return "\n".join([*lines, "", f" {'=' * 61}", ""])


def _bound(placement: Placement, topology: Topology | None) -> str:
    """`socket 0[core 0[hwt 0]]:[B/.]`; N/A for a rank that is not bound."""
    if not placement.cpus:
        return "N/A"
    if topology is not None and set(placement.cpus) == set(topology.cpus):
        return "UNBOUND"
    return bound_to(topology, placement.cpus).replace("bound to ", "", 1).replace(": [", ":[", 1)
