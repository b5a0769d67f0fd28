"""Ranks to nodes and to objects of their topologies: the defaults, the table of mappers, and the job map they make.

Rules and defaults are those of mpirun 4.1.4, by experiment (docs/placement.md lists them).  A modifier without a policy
(`--map-by :PE=2`) means `socket`, not the default.  `--rank-by` follows the mapping only for `node`: dealing ranks
round the objects of a node in turn gives the same as ranking by these objects.  A node whose topology is not known
counts as flat, with a core for each slot.

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
from mslaunch.plan.mapping.slot_counts import MAX_RANKS, MappingJob, SlotCounts
from mslaunch.plan.mapping.topology_view import TopologyView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from mslaunch.datamodel.jobmap import Allocation, Placement
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import Policy, Request

    class Mapper(Protocol):
        """One way to map; the module's docstring has the contract."""

        def __call__(self, job: MappingJob) -> Sequence[Placement]:
            """The placements of all ranks."""


_FEW = 2  # up to so many ranks are mapped by core

#: the policy's word -> its mapper, imported when it is asked for
MAPPERS = {
    "slot": "plan.mapping.by_slot_or_object:map_by_slot",
    "node": "plan.mapping.by_slot_or_object:map_by_node",
    **dict.fromkeys(LEVELS, "plan.mapping.by_slot_or_object:map_by_object"),
    "ppr": "plan.mapping.ppr:map_by_pattern",
    "seq": "plan.mapping.sequential:map_in_sequence",
    "rounds": "plan.mapping.sequential:map_in_rounds",
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
    if used and used[-1] >= len(used):  # there are nodes without a rank before it
        index = {node: at for at, node in enumerate(used)}
        placements = [placement._replace(node=index[placement.node]) for placement in placements]
    return JobMap(
        nodes=tuple(slots.nodes[node] for node in used),
        placements=tuple(placements),
        slots=sum(slots.slots),
        oversubscribed=any(slots.used[node] > slots.slots[node] for node in used),
    )


# --- the defaults of mapping and ranking


def settle(policy: Policy, ranks: Callable[[], int], has: Callable[[str], bool]) -> Policy:
    """The policy with `map_by`, `rank_by` and `hwthread_cpus` filled in.

    `ranks()` is the number of all ranks of the job; `has` tells whether the first node has objects of a level.  Raises
    UsageError for what cannot be mapped.
    """
    if policy.bind_to == "hwthread":
        policy = policy._replace(hwthread_cpus=True)
    map_by = policy.map_by or _default(policy, ranks, has)
    _refuse(policy, map_by)
    rank_by = policy.rank_by or _ranking(policy, map_by)
    return policy._replace(
        map_by=map_by,
        rank_by="node" if rank_by == "board" else rank_by,
        hwthread_cpus=policy.hwthread_cpus or map_by == "hwthread",
    )


def _default(policy: Policy, ranks: Callable[[], int], has: Callable[[str], bool]) -> str:
    if policy.ppr:
        return "ppr"
    if policy.span or policy.pe:
        return "socket"
    if ranks() <= _FEW:
        return "hwthread" if policy.hwthread_cpus else "core"
    return "numa" if has("numa") else "socket"


def _ranking(policy: Policy, map_by: str) -> str:
    """The order of ranks where no object is said: of `fill` and `span` that which ranks are mapped by, as in 5.0."""
    if not policy.rank_how:
        return "node" if map_by == "node" else "slot"
    level = policy.ppr[-1][1] if policy.ppr else map_by
    if level not in LEVELS or policy.rankfile is not None:
        raise UsageError(
            f"ranks are mapped by {'rankfile' if policy.rankfile is not None else level}, not by an object",
            f"--rank-by {policy.rank_how}",
            f"map by an object, as --map-by core, or rank by its name: --rank-by core:{policy.rank_how}",
        )
    return level


def _refuse(policy: Policy, map_by: str) -> None:
    if map_by == "dist":
        raise UsageError(
            "mslaunch does not know how far a device is from each cpu",
            "--map-by dist",
            "use --map-by numa, or write the cpus next to the device into a rankfile",
        )
    single = map_by == "hwthread" or (map_by == "core" and not policy.hwthread_cpus)
    if policy.pe > 1 and single:
        raise UsageError(
            f"a {map_by} has no {policy.pe} cpus to give to a rank",
            f"--map-by {map_by}:PE={policy.pe}",
            f"map by something larger, as --map-by socket:PE={policy.pe} or slot:PE={policy.pe}",
        )


def topology_decides(policy: Policy) -> bool:
    """Whether the node that a rank goes to can depend on the topologies of the nodes.

    If not, a map made of slots alone has the same nodes for all ranks as one that knows the topologies; what these
    add is the object in the node.  So only the nodes of that map have to be asked.
    """
    if policy.rankfile is not None or policy.map_by == "seq":
        return False
    if policy.ppr:
        if any(level != "node" for _, level in policy.ppr):
            return True
    elif policy.span and (not policy.map_by or policy.map_by in LEVELS):
        return True
    ranked = policy.rank_by or policy.map_by or "core"  # without both, an object in any case
    return policy.rank_how == "span" and ranked in LEVELS and ranked != "board"
