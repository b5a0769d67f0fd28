"""From the allocation to the finished map: ranks to nodes, to objects of their machines, to cpus.

The one room that knows the order in which mapping and binding go, and when a node must be asked what its machine is
like.  It asks through a function that it is given.  In the end the map gets the scheduler's host, should it be another
than that of the first rank.  The surprising thing is that a job may be mapped twice: first as if all machines were
alike, which tells the nodes that get ranks, so that only these need be reached and asked.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.policy_defaults import topology_decides

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.hosts import Allocation, Node
    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.datamodel.request import Request
    from mslaunch.datamodel.topology import Topology

    Ask = Callable[[Sequence[Node]], Mapping[str, Topology]]


class Placed(NamedTuple):
    """The map, with cpus where ranks are bound, and the machines of the nodes that were asked, by name."""

    jobmap: JobMap
    topologies: Mapping[str, Topology]


def place(request: Request, allocation: Allocation, ask: Ask, is_local: Callable[[str], bool], hostname: str) -> Placed:
    """Map and bind.  `ask` is called at most once, if anything depends on machines, with the nodes that matter.

    `is_local` tells whether a name is this host, which is called `hostname`.  Raises AllocationError and UsageError;
    what `ask` raises goes through.
    """
    placed = _placed(request, allocation, ask)
    jobmap, cluster = placed.jobmap, request.cluster
    if cluster.share and cluster.share.first:
        jobmap = _shifted(jobmap, cluster.share.first)
    if cluster.host and not cluster.simulated and not cluster.share:
        from mslaunch.plan.hosts.scheduler_host import naming_of, with_scheduler

        jobmap = with_scheduler(jobmap, cluster.host, allocation, naming_of(request, is_local, hostname))
        if jobmap.service >= 0 and jobmap.service_cpus:  # those of the first rank's host
            raise UsageError(
                f"the NUMA nodes of {cluster.host} are not known",
                f"{request.policy.local.where if request.policy.local else ''}: scheduler",
                'leave "scheduler" out, or name its cpus in --bind_core',
            )
    return placed._replace(jobmap=jobmap)


def _placed(request: Request, allocation: Allocation, ask: Ask) -> Placed:
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


def _shifted(jobmap: JobMap, first: int) -> JobMap:
    """The same with ranks from `first` on: those before it are started by others."""
    placements = tuple(placement._replace(rank=placement.rank + first) for placement in jobmap.placements)
    return jobmap._replace(placements=placements)


def shows_machines(request: Request) -> bool:
    """Whether what is displayed tells of machines."""
    return request.display_topology or request.display_map in ("devel", "diffable") or request.report_bindings
