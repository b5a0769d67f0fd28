"""Ranks to nodes, and to objects of their machines: the story, app context by app context.

How many ranks a node gets is told by the mappers (`byslot`, `byobject`, `ppr`, `sequence`, `rankfile`), and whose turn
it is by `ranking`.  It knows no users and no way to reach a node, and asks nobody: machines come as topologies, and one
that is not known yet is taken for a flat one.  The rules are Open MPI 4.1's, found by experiment; docs/placement.md
lists them.

The surprising thing is the locale of a rank: the n-th rank on a node gets the n-th object, whatever app context it is
of, so that the ranks of a second program go on where those of the first end.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap, Placement
from mslaunch.datamodel.topology import LEVELS
from mslaunch.errors import AllocationError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.mapping.policy_defaults import settle
from mslaunch.plan.mapping.slot_counts import MAX_RANKS, SlotCounts
from mslaunch.plan.mapping.topology_view import WHOLE, TopologyView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.datamodel.hosts import Allocation
    from mslaunch.datamodel.request import Policy, Request
    from mslaunch.datamodel.topology import Topology
    from mslaunch.plan.mapping.topology_view import Locale


def map_job(request: Request, allocation: Allocation, topologies: Mapping[str, Topology]) -> JobMap:
    """Places the ranks of all app contexts; every node's slots must be known.

    `topologies` are by node name; a node that is missing there counts as flat, with a core for each slot.  Ranks go on
    from app context to app context, and slots that one has taken are taken for the next.  Without np an app context
    asks for all slots (with -N n: for n on every node).  Placements have no cpus yet, unless a rankfile says which.
    Raises AllocationError and UsageError.
    """
    _check_numbers(request)
    slots = SlotCounts(allocation, request.policy)
    machines = TopologyView(allocation.nodes, topologies)
    if allocation.ranks:
        from mslaunch.plan.hosts.rankfile import by_rankfile

        placements = by_rankfile(request, allocation, slots, machines)
    elif request.policy.map_by == "seq":
        from mslaunch.plan.mapping.sequential import in_sequence

        placements = _numbered([(app, node, WHOLE) for app, node in in_sequence(request, allocation, slots)])
    else:
        placements = _numbered(_dealt(request, slots, machines))
    return _as_map(placements, slots)


def _check_numbers(request: Request) -> None:
    before = 0
    for context in request.apps:
        if context.np is not None and not 0 < context.np <= MAX_RANKS - before:
            raise AllocationError(f"{context.np} ranks cannot be started", todo=f"ask for 1 to {MAX_RANKS} ranks")
        before += context.np or 0


def _dealt(request: Request, slots: SlotCounts, machines: TopologyView) -> list[tuple[int, int, Locale]]:
    """(app, node, locale) of each rank, in rank order."""
    asked = sum(slots.total(app) if one.np is None else one.np for app, one in enumerate(request.apps))
    policy = settle(request.policy, asked, lambda level: machines.count(0, level) > 0)
    rows: list[tuple[int, int, Locale]] = []
    for app, context in enumerate(request.apps):
        mine = slots.open_to(app, whole=bool(policy.ppr) and context.np is None)
        places = _places(policy, slots, machines, mine, context.np, app)
        taken = dict(zip(mine, places))
        for node, locales in taken.items():
            _check_cpus(policy, machines, node, locales)
            slots.take(node, len(locales))
        rows += ((app, node, locale) for node, locale in _ranked(taken, slots.mapped, policy, machines))
        slots.asked = len(rows)
    return rows


def _places(
    policy: Policy, slots: SlotCounts, machines: TopologyView, mine: Sequence[int], np: int | None, app: int
) -> list[list[Locale]]:
    """The locales of the new ranks, for each of the nodes `mine` in turn."""
    if policy.map_by == "ppr":
        from mslaunch.plan.mapping.ppr import by_pattern

        return by_pattern(slots, machines, mine, np, policy.ppr, slots.total(app))
    if policy.ppr:
        from mslaunch.plan.mapping.ppr import stepped

        counts = stepped(slots, machines, mine, np, policy.ppr, policy.map_by == "slot")
    else:
        wanted = slots.total(app) if np is None else np
        counts = _counts(policy, slots, machines, mine, wanted)
    if policy.map_by not in LEVELS:
        return [[WHOLE] * count for count in counts]
    from mslaunch.plan.mapping.by_object import turns

    return [turns(machines, node, policy.map_by, slots.used[node], count) for node, count in zip(mine, counts)]


def _counts(policy: Policy, slots: SlotCounts, machines: TopologyView, mine: Sequence[int], wanted: int) -> list[int]:
    if policy.span and policy.map_by in LEVELS:
        from mslaunch.plan.mapping.by_object import span

        return span(slots, machines, mine, wanted, policy.map_by)
    from mslaunch.plan.mapping.by_slot import by_node, by_slot

    return (by_node if policy.map_by == "node" else by_slot)(slots, mine, wanted)


def _check_cpus(policy: Policy, machines: TopologyView, node: int, locales: Sequence[Locale]) -> None:
    if policy.pe:
        from mslaunch.plan.mapping.by_object import check_cpus

        check_cpus(machines, node, locales, policy)


def _ranked(
    taken: Mapping[int, Sequence[Locale]], order: Sequence[int], policy: Policy, machines: TopologyView
) -> list[tuple[int, Locale]]:
    if policy.rank_by == "slot":  # nearly always, and without another module
        return [(node, locale) for node in order for locale in taken.get(node, ())]
    from mslaunch.plan.mapping.ranking import ranked

    return ranked(taken, order, policy, machines)


def _numbered(rows: Sequence[tuple[int, int, Locale]]) -> list[Placement]:
    """Ranks and local ranks, counted through; nodes are those of the allocation."""
    locals_: dict[int, int] = {}
    placements = []
    for rank, (app, node, locale) in enumerate(rows):
        local = locals_.get(node, 0)
        locals_[node] = local + 1
        placements.append(Placement(rank, app, node, local, (), locale))
    return placements


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
