"""Hosts that the command line chooses among those that a resource manager has granted.

As in Open MPI 4.1 (orte_rmaps_base_get_target_nodes), -H and hostfiles only choose within a grant: a host outside is
refused, and so are more slots on a host than were granted there.  A host whose slots nobody gave has those granted.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError, counted
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import Allocation, Node

LEAVE = "name hosts of the job, or add --resource-manager none to leave it"


def chosen_of(named: Allocation, granted: Allocation, title: str) -> Allocation:
    """The allocation that was named, each node as it was granted; `title` is the job, in messages.

    Raises AllocationError for hosts outside, and for more slots than there are.
    """
    nodes = tuple(_granted(node, granted.nodes, title) for node in named.nodes)
    spares = tuple(_granted(node, granted.nodes, title) for node in named.spares)
    return named._replace(nodes=nodes, spares=spares, declared=True)


def _granted(node: Node, granted: Sequence[Node], title: str) -> Node:
    own = _same(node, granted)
    if own is None:
        names = ", ".join(one.name for one in granted[:8]) + (", …" if len(granted) > 8 else "")
        raise AllocationError(f"{node.name} is not a host of {title}, which has {names}", node.source, LEAVE)
    if node.slots is None:
        return own._replace(spare=node.spare)
    if own.slots is not None and node.slots > own.slots:
        what = f"{node.name} is given {counted(node.slots, 'slot')}, and {title} has {own.slots} there"
        raise AllocationError(what, node.source, "ask for fewer, or add --oversubscribe and leave the number out")
    return own._replace(slots=node.slots, max_slots=node.max_slots, spare=node.spare, source=node.source)


def _same(node: Node, granted: Sequence[Node]) -> Node | None:
    """The granted node that a name means: by its whole name, this host under any name, or the first label of one."""
    for one in granted:
        if one.name == node.name or (one.local and node.local):
            return one
    short = node.name.partition(".")[0]
    alike = [one for one in granted if one.name.partition(".")[0] == short]
    whole = [one for one in alike if "." in one.name and "." in node.name]
    return alike[0] if len(alike) == 1 and not whole else None
