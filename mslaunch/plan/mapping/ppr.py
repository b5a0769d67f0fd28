"""Mapper `ppr`: so many ranks for each object, as `ppr:2:socket`; -N, -npernode and -npersocket mean the same.

Rules of Open MPI 4.1.4, by experiment.  Several objects (`ppr:1:core,4:socket`) are one pattern: ranks at the smallest,
as many as the larger ones allow, dealt alike; mpirun 4.1.4 ignores all but the smallest.  Without -np, `node` and
`socket` get the whole pattern; other objects as many ranks as there are slots, if the pattern has room for them.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import LEVELS
from mslaunch.errors import AllocationError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.mapping.slot_counts import MAX_RANKS, app_by_app
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.datamodel.jobmap import Placement
    from mslaunch.plan.mapping.slot_counts import MappingJob, SlotCounts
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView

    Pattern = Sequence[tuple[int, str]]  # ranks, and node or one of LEVELS

_ORDER = (*LEVELS, "node")
_WHOLE_PATTERN = frozenset(("node", "socket"))  # of these mpirun counts the objects where np is absent


def map_by_pattern(job: MappingJob) -> list[Placement]:
    """The mapper `ppr`."""
    slots, machines, pattern = job.slots, job.machines, job.policy.ppr
    return app_by_app(job, lambda app, mine, np: by_pattern(slots, machines, mine, np, pattern, slots.total(app)))


def by_pattern(
    slots: SlotCounts, machines: TopologyView, mine: Sequence[int], np: int | None, pattern: Pattern, slots_of_all: int
) -> list[list[Locale]]:
    """The locales of the new ranks, for each of the nodes `mine` in turn; with np the first np of these places.

    Raises AllocationError if the pattern has no room for np ranks, or a node no slots for its part.
    """
    text = ",".join(f"{many}:{level}" for many, level in pattern)
    levels = [level for _, level in pattern]
    if any(not 0 < many <= MAX_RANKS // len(mine) for many, _ in pattern):
        raise AllocationError(f"{text} is no pattern of ranks", "ppr", f"ask for 1 to {MAX_RANKS} ranks in all")
    places = [_places(machines, node, pattern) for node in mine]
    most = sum(map(len, places))
    if not most:
        what = f"{slots.nodes[mine[0]].name} has no {min(levels, key=_ORDER.index)}"
        raise AllocationError(what, f"ppr:{text}", "count by core or node")
    wanted = np if np is not None else most
    if np is None and not _WHOLE_PATTERN.intersection(levels):
        wanted = min(most, slots_of_all)
    if wanted > most:
        raise AllocationError(
            f"{wanted} ranks do not fit on {counted(len(mine), 'node')}: {text} makes {most}",
            "-np",
            "lower -np, raise the number of ranks for each, or name more hosts",
        )
    for at, here in enumerate(places):
        places[at] = here[:wanted]
        wanted -= len(places[at])
        if len(places[at]) > slots.room(mine[at]):
            name, room, ranks = slots.nodes[mine[at]].name, slots.room(mine[at]), counted(len(places[at]), "rank")
            raise slots.refusal(f"not enough slots: {ranks} ({text}) for {name}, {room} free")
    return places


def stepped(
    slots: SlotCounts, machines: TopologyView, mine: Sequence[int], np: int | None, pattern: Pattern, in_order: bool
) -> list[int]:
    """-N n beside another policy: n ranks for each of the nodes `mine`, and again, if there are more (4.1.4).

    Without np, n for each.  `in_order`: the policy is by slot, which goes on with the free slots of the first node.
    Raises AllocationError if the slots do not suffice.
    """
    each = [len(_places(machines, node, pattern)) for node in mine]
    if np is None or not any(each):
        return [len(places) for places in by_pattern(slots, machines, mine, np, pattern, MAX_RANKS)]
    slots.check(mine, np)
    counts = [0] * len(mine)
    left = np
    while left and not (in_order and any(counts)):
        for at, node in enumerate(mine):
            step = min(each[at], slots.room(node) - counts[at], left)
            counts[at] += step
            left -= step
    return slots.filled(mine, counts, left)


def _places(machines: TopologyView, node: int, pattern: Pattern) -> list[Locale]:
    """The whole pattern on one node, object by object."""
    many, level = min(pattern, key=lambda part: _ORDER.index(part[1]))
    if level == "node":
        return [WHOLE] * many
    counts = [many] * machines.count(node, level)
    limits = {upper: most for most, upper in pattern if upper != level}
    if limits:
        counts = _pruned(machines, node, level, counts, limits)
    return [(level, number) for number, count in enumerate(counts) for _ in range(count)]


def _pruned(
    machines: TopologyView, node: int, level: str, counts: Sequence[int], limits: Mapping[str, int]
) -> list[int]:
    """As many of the counts as the larger objects allow, dealt one at a time to the smaller ones in turn."""
    first = {number: at for at, number in reversed(list(enumerate(machines.topologies[node].row(level))))}
    rows = {upper: machines.topologies[node].row(upper) if upper != "node" else () for upper in limits}
    above = [
        [(upper, row[first[number]] if row else 0) for upper, row in rows.items()] for number in range(len(counts))
    ]
    left = {key: limits[key[0]] for keys in above for key in keys}
    made = [0] * len(counts)
    for turn in range(max(counts, default=0)):
        for number, count in enumerate(counts):
            if turn < count and all(left[key] for key in above[number]):
                made[number] += 1
                for key in above[number]:
                    left[key] -= 1
    return made
