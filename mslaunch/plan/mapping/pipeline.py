"""From the request to the finished job map: allocation, mapping, binding, and the host of the services.

A job may be mapped twice: first as if all nodes were alike, which tells the nodes that get ranks, so that only these
need be reached and asked for their topologies.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.datamodel.node_plan import NO_NODE, NodeId
from mslaunch.datamodel.request import DEFAULT_SLOTS
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.binding import bind, check, unbound_programs, usable, wants_binding
from mslaunch.plan.mapping.mapper import map_job, topology_decides

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import Request

    Ask = Callable[[Sequence[Node]], Mapping[str, Topology]]


class Placed(NamedTuple):
    """The map, with cpus where ranks are bound."""

    jobmap: JobMap
    topologies: Mapping[str, Topology]  # of the nodes that were asked, by name
    unbound: Mapping[int, str] = {}  # app contexts that are not bound by default, and why


def allocate(
    request: Request,
    read_text: Callable[[str], str],
    is_local: Callable[[str], bool],
    hostname: str,
    cores: int,
    granted: Allocation | None = None,
    title: str = "",
) -> Allocation:
    """The nodes that the request names; without any those granted, or this host, which has that name, a slot a core.

    `granted`: the hosts that a resource manager has granted to the job `title`, from which -H, hostfiles and rankfiles
    choose; the default hostfile does not (mpirun 4.1.4 and 5.0.11).

    `read_text` may raise OSError and UnicodeDecodeError.  Raises HostfileError, UsageError (-H), AllocationError.
    """
    default = dict(request.mca).get(DEFAULT_SLOTS)
    here = Node(hostname, int(default or cores), DEFAULT_SLOTS if default else "cores", local=True)
    if granted:
        request = request._replace(default_hostfile=None)
    if not request.names_hosts:
        return granted or Allocation((here,), declared=default is not None)
    from mslaunch.plan.hosts.allocation import allocate_named

    if not granted:
        return allocate_named(request, read_text, is_local, here)
    from mslaunch.plan.hosts.granted_hosts import chosen_of

    here = here._replace(slots=None)  # cores that were not granted are not ours
    return chosen_of(allocate_named(request, read_text, is_local, here, granted.nodes), granted, title)


def place(
    request: Request,
    allocation: Allocation,
    ask: Ask,
    is_local: Callable[[str], bool],
    hostname: str,
    read: Callable[[str], bytes] = lambda path: b"",
    cwd: str = "/",
) -> Placed:
    """Map and bind.  `ask` is called at most once, if anything depends on topologies, with the nodes that matter.

    `is_local` tells whether a name is this host, which is called `hostname`; `read` gives the first bytes of a file,
    b"" if there are none, and programs start in `cwd`.  Raises AllocationError and UsageError; what `ask` raises goes
    through.
    """
    placed = _placed(request, allocation, ask, cwd, read)
    jobmap, cluster = placed.jobmap, request.cluster
    if cluster.share and cluster.share.first:
        jobmap = _shifted(jobmap, cluster.share.first)
    if cluster.host and not cluster.simulated and not cluster.share:
        from mslaunch.plan.hosts.host_names import named_node, naming_of

        node = named_node(cluster.host, allocation, naming_of(request, is_local, hostname))
        jobmap = _with_services(jobmap, node)
        if jobmap.service != NO_NODE and jobmap.service_cpus:  # those of the first rank's host
            raise UsageError(
                f"the NUMA nodes of {cluster.host} are not known",
                f"{request.policy.local.where if request.policy.local else ''}: scheduler",
                'leave "scheduler" out, or name its cpus in --bind_core',
            )
    return placed._replace(jobmap=jobmap)


def _with_services(jobmap: JobMap, node: Node) -> JobMap:
    """The map with the services on `node`.

    Without ranks it becomes the last node of the map, since there must be a link to it; whoever shows a map, or numbers
    its nodes, counts only those with ranks.
    """
    names = [one.name for one in jobmap.nodes]
    if node.name not in names:
        return jobmap._replace(nodes=(*jobmap.nodes, node), service=NodeId(len(names)))
    at = names.index(node.name)
    return jobmap._replace(service=NO_NODE if at == jobmap.placements[0].node else NodeId(at))


def _placed(request: Request, allocation: Allocation, ask: Ask, cwd: str, read: Callable[[str], bytes]) -> Placed:
    policy = request.policy
    check(policy)
    if topology_decides(policy):
        unbound = unbound_programs(request, cwd, read)
        topologies = ask(allocation.nodes)
    else:
        jobmap = map_job(request, allocation, {})
        wants = wants_binding(policy, jobmap)
        unbound = unbound_programs(request, cwd, read) if wants else {}
        wants = wants and any(placement.app not in unbound for placement in jobmap.placements)
        if not (wants or shows_machines(request)):
            return Placed(jobmap, {}, unbound)
        topologies = ask(jobmap.nodes)
    machines = usable(policy, topologies)
    return Placed(bind(map_job(request, allocation, machines), policy, machines, unbound), topologies, unbound)


def _shifted(jobmap: JobMap, first: int) -> JobMap:
    """The same with ranks from `first` on: those before it are started by others."""
    placements = tuple(placement._replace(rank=placement.rank + first) for placement in jobmap.placements)
    return jobmap._replace(placements=placements)


def shows_machines(request: Request) -> bool:
    """Whether what is displayed tells of machines."""
    return request.display_topology or request.display_map in ("devel", "diffable") or request.report_bindings
