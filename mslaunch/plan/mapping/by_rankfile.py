"""Mapper `rankfile`: ranks to the host and the cpus that a rankfile names.

A rankfile both maps and binds: placements have their cpus as far as the topology of their node is known.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Placement
from mslaunch.datamodel.node_report import LEVELS
from mslaunch.errors import AllocationError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.cpu_lists import listed
from mslaunch.plan.hosts.host_names import YES
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from mslaunch.datamodel.jobmap import RankLine
    from mslaunch.plan.mapping.slot_counts import MappingJob
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView

_PHYSICAL = "rmaps_rank_file_physical"


def map_by_rankfile(job: MappingJob) -> list[Placement]:
    """The mapper `rankfile`: the ranks that the app contexts ask for; without np, all lines that are left.

    Raises AllocationError for a rank that is not in the file or has a host that its app context may not use, UsageError
    for cpus that its node has not.
    """
    lines = {line.rank: line for line in job.allocation.ranks}
    made: list[Placement] = []
    for app, context in enumerate(job.request.apps):
        mine = set(job.slots.all_of(app))
        begin = len(made)
        end = begin + context.np if context.np is not None else len(lines)
        if end <= begin:
            raise AllocationError("the rankfile has no ranks left for this program", "-np", "say how many ranks it has")
        for rank in range(begin, end):
            line = lines.get(rank)
            if line is None:
                todo = f"add one, as: rank {rank}=node1 slot=0; or lower -np"
                raise AllocationError(f"rank {rank} of {end} has no line", job.request.policy.rankfile or "", todo)
            made.append(_placed(job, app, line, mine))
    return made


def _placed(job: MappingJob, app: int, line: RankLine, mine: Container[int]) -> Placement:
    node, machines = line.node, job.machines
    if node not in mine:
        raise AllocationError(
            f"rank {line.rank} is for {line.host}, which is not among the hosts of its program",
            line.source,
            "add it to -H or --hostfile, or leave these out: a rankfile alone will do",
        )
    local = job.slots.used[node]
    job.slots.take(node, 1)
    if not machines.is_known(node):
        return Placement(line.rank, app, node, local)
    places = _places(job, line)
    cpus = tuple(machines.topologies[node].cpus[at] for at in places)
    return Placement(line.rank, app, node, local, cpus, _object(machines, node, places))


def _places(job: MappingJob, line: RankLine) -> Sequence[int]:
    """Where in `Topology.cpus` the listed cpus are; physical numbers stand for the cores around them (4.1.4)."""
    topology, hwthreads = job.machines.topologies[line.node], job.request.policy.hwthread_cpus
    name = job.slots.nodes[line.node].name
    if dict(job.request.mca).get(_PHYSICAL, "").lower() not in YES:
        return listed(line.cpus, topology, hwthreads, line.source, name)
    core = LEVELS.index("core")
    objects = (*topology.objects[:core], topology.cpus, *topology.objects[core + 1 :])
    places = listed(line.cpus, topology._replace(objects=objects), False, line.source, name)
    cores = topology.objects[core]
    if hwthreads or not cores:
        return places
    chosen = {cores[at] for at in places}
    return [at for at, number in enumerate(cores) if number in chosen]


def _object(machines: TopologyView, node: int, places: Sequence[int]) -> Locale:
    """The object that has exactly these hardware threads, the smallest of several; else the whole node."""
    for level in LEVELS:
        row = machines.topologies[node].row(level)
        if row and machines.inside(node, (level, row[places[0]])) == list(places):
            return level, row[places[0]]
    return WHOLE
