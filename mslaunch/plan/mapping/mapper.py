"""Ranks to nodes and to objects of their topologies: the table of mappers, and the job map that one of them makes.

Rules are Open MPI 4.1's, by experiment (docs/placement.md lists them).  A node whose topology is not known counts as
flat, with a core for each slot.

A mapper is a module with one row in `MAPPERS`, a function with the signature of `Mapper`:

- accept: it returns the placements of all ranks of the job, in rank order; `node` is an index into
  `job.allocation.nodes`, `locale` the object that binding starts from, and `cpus` stays empty unless the mapper binds
  as well (a rankfile does).  Every rank is counted with `job.slots.take`.
- not mine: the word of the policy decides, so a mapper is not asked for the jobs of others; a word without a row is
  refused here.
- error: it raises AllocationError where slots or hosts do not suffice, UsageError where the policy cannot be met;
  neither names a rank that is not in the request.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_report import LEVELS
from mslaunch.errors import AllocationError, UsageError
from mslaunch.faststd import TYPE_CHECKING, load
from mslaunch.plan.mapping.app_by_app import MappingJob
from mslaunch.plan.mapping.policy_defaults import settle
from mslaunch.plan.mapping.slot_counts import MAX_RANKS, SlotCounts
from mslaunch.plan.mapping.topology_view import TopologyView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from mslaunch.datamodel.jobmap import Allocation, Placement
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import Request

    class Mapper(Protocol):
        """One way to map; the module's docstring has the contract."""

        def __call__(self, job: MappingJob) -> Sequence[Placement]:
            """The placements of all ranks."""


#: the policy's word -> its mapper, imported when it is asked for
MAPPERS = {
    "slot": "plan.mapping.by_slot:map_by_slot",
    "node": "plan.mapping.by_slot:map_by_node",
    **dict.fromkeys(LEVELS, "plan.mapping.by_object:map_by_object"),
    "ppr": "plan.mapping.ppr:map_by_pattern",
    "seq": "plan.mapping.sequential:map_in_sequence",
    "rankfile": "plan.mapping.by_rankfile:map_by_rankfile",
}


def mapper_of(word: str) -> Mapper:
    """The mapper of a policy's word.  Raises UsageError if there is none."""
    if word not in MAPPERS:
        raise UsageError(f"there is no mapper {word!r}", f"--map-by {word}", f"use one of {', '.join(MAPPERS)}")
    mapper: Mapper = load(MAPPERS[word])
    return mapper


def map_job(request: Request, allocation: Allocation, topologies: Mapping[str, Topology]) -> JobMap:
    """Places the ranks of all app contexts; every node's slots must be known, `topologies` are by node name.

    Ranks go on from app context to app context, and slots that one has taken are taken for the next.  Without np an
    app context asks for all slots (with -N n: for n on every node).  Raises AllocationError and UsageError.
    """
    _check_numbers(request)
    slots = SlotCounts(allocation, request.policy)
    machines = TopologyView(allocation.nodes, topologies)
    asked = request.policy._replace(map_by="rankfile") if allocation.ranks else request.policy
    policy = settle(
        asked,
        lambda: sum(slots.total(app) if one.np is None else one.np for app, one in enumerate(request.apps)),
        lambda level: machines.count(0, level) > 0,
    )
    return _as_map(mapper_of(policy.map_by)(MappingJob(request, policy, allocation, slots, machines)), slots)


def _check_numbers(request: Request) -> None:
    before = 0
    for context in request.apps:
        if context.np is not None and not 0 < context.np <= MAX_RANKS - before:
            raise AllocationError(f"{context.np} ranks cannot be started", todo=f"ask for 1 to {MAX_RANKS} ranks")
        before += context.np or 0


def _as_map(placements: Sequence[Placement], slots: SlotCounts) -> JobMap:
    """The map, without the nodes that got no rank."""
    used = [node for node, count in enumerate(slots.used) if count]
    index = {node: at for at, node in enumerate(used)}
    return JobMap(
        nodes=tuple(slots.nodes[node] for node in used),
        placements=tuple(
            placement if index[placement.node] == placement.node else placement._replace(node=index[placement.node])
            for placement in placements
        ),
        slots=sum(slots.slots),
        oversubscribed=any(slots.used[node] > slots.slots[node] for node in used),
    )
