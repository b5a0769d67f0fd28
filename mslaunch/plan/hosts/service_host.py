"""The host of a job's services, where the user has named one.

It may be one of those with ranks, another of the allocation, this host, or one that nobody has mentioned before.  A
host without ranks becomes the last node of the map, since there must be a link to it; whoever shows a map, or numbers
its nodes, counts only those with ranks.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_NODE
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.hosts.host_names import first_said

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import Allocation, JobMap, Node
    from mslaunch.plan.hosts.host_names import HostNames

WHERE = "--scheduler"  #: who names it


def with_services(jobmap: JobMap, host: str, allocation: Allocation, naming: HostNames) -> JobMap:
    """The map with the node of the services, which are on `host`: a name or address, with or without `user@`.

    Raises UsageError for what is no host.
    """
    node = named_node(host, allocation, naming)
    names = [one.name for one in jobmap.nodes]
    if node.name not in names:
        return jobmap._replace(nodes=(*jobmap.nodes, node), service=len(names))
    at = names.index(node.name)
    return jobmap._replace(service=NO_NODE if at == jobmap.placements[0].node else at)


def named_node(host: str, allocation: Allocation, naming: HostNames) -> Node:
    """The node that `host` means; what the allocation says of it is kept."""
    from mslaunch.plan.hosts.hostfile import parse_hosts

    try:
        lines = parse_hosts(host)
    except UsageError as error:
        raise UsageError(error.what, WHERE, error.todo) from None
    if len(lines) != 1 or lines[0].name[0] in "+^":
        raise UsageError(f"{host!r} is not the name of one host", WHERE, "write it like node1, or joe@node1")
    new = naming.node(lines[0])._replace(slots=0, source=WHERE)
    for node in (*allocation.nodes, *allocation.spares):
        if node.name == new.name or (node.local and new.local):
            return first_said(node, new)
    return new
