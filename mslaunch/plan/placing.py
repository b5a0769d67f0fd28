"""From the allocation to the finished map: ranks to nodes, to objects of their machines, to cpus.

The one room that knows the order in which mapping and binding go, and when a node must be asked what its machine is
like.  It asks through a function that it is given.  The surprising thing is that a job may be mapped twice: first as if
all machines were alike, which tells the nodes that get ranks, so that only these need be reached and asked.
"""

from __future__ import annotations

from mslaunch.lean import TYPE_CHECKING, NamedTuple
from mslaunch.plan.mapping import map_job
from mslaunch.plan.policy import topology_decides

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.model import Allocation, JobMap, Node, Request, Topology

    Ask = Callable[[Sequence[Node]], Mapping[str, Topology]]


class Placed(NamedTuple):
    """The map, with cpus where ranks are bound, and the machines of the nodes that were asked, by name."""

    jobmap: JobMap
    topologies: Mapping[str, Topology]


def place(request: Request, allocation: Allocation, ask: Ask) -> Placed:
    """Map and bind.  `ask` is called at most once, if anything depends on machines, with the nodes that matter.

    Raises AllocationError and UsageError; what `ask` raises goes through.
    """
    from mslaunch.plan.binding import bind, check, usable, wants_binding

    policy = request.policy
    check(policy)
    if topology_decides(policy):
        told = ask(allocation.nodes)
    else:
        jobmap = map_job(request, allocation, {})
        if not (wants_binding(policy, jobmap) or shows_machines(request)):
            return Placed(jobmap, {})
        told = ask(jobmap.nodes)
    machines = usable(policy, told)
    return Placed(bind(map_job(request, allocation, machines), policy, machines), told)


def shows_machines(request: Request) -> bool:
    """Whether what is displayed tells of machines."""
    return request.display_topology or request.display_map in ("devel", "diffable") or request.report_bindings
