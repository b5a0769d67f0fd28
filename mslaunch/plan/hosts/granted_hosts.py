"""Hosts that the command line chooses among those that a resource manager has granted.

Rules of mpirun, recorded in a job of Slurm: -H takes as many slots of a host as it says, but no more than were granted;
a hostfile only chooses hosts, which keep the slots granted there, whatever it says (4.1.4 and 5.0.11).  Hosts have the
order of mention, and a host outside is refused (5.0.11; 4.1.4 leaves it out).
"""

from __future__ import annotations

from mslaunch.errors import AllocationError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import Allocation, Node

LEAVE = "name hosts of the job, or add --resource-manager none to leave it"


def chosen_of(named: Allocation, granted: Allocation, title: str) -> Allocation:
    """The allocation that was named, each node as it was granted; `title` is the job, in messages.

    Raises AllocationError for hosts outside.
    """
    nodes = tuple(_granted(node, granted.nodes, title) for node in named.nodes)
    spares = tuple(_granted(node, granted.nodes, title) for node in named.spares)
    return named._replace(nodes=nodes, spares=spares, declared=True)


def _granted(node: Node, granted: Sequence[Node], title: str) -> Node:
    own = _same(node, granted)
    if own is None:
        names = ", ".join(one.name for one in granted[:8]) + (", …" if len(granted) > 8 else "")
        raise AllocationError(f"{node.name} is not a host of {title}, which has {names}", node.source, LEAVE)
    if node.source != "-H" or node.slots is None or own.slots is None or node.slots >= own.slots:
        return own._replace(spare=node.spare)
    return own._replace(slots=node.slots, spare=node.spare, source=f"-H, {own.source}")


def _same(node: Node, granted: Sequence[Node]) -> Node | None:
    """The granted node that a name means: by its whole name, this host under any name, or the first label of one."""
    for one in granted:
        if one.name == node.name or (one.local and node.local):
            return one
    short = node.name.partition(".")[0]
    alike = [one for one in granted if one.name.partition(".")[0] == short]
    whole = [one for one in alike if "." in one.name and "." in node.name]
    return alike[0] if len(alike) == 1 and not whole else None
