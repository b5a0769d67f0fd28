"""Mappers by slot, by node and by object: how many ranks each node gets, and the object of each rank.

Rules of Open MPI 4.1.4, by experiment.  By node, where some nodes fill up, the others are not levelled: 9 3 9 slots
with 11 ranks are 5 3 3, since shares are worked out pass by pass.  By object (cores, caches, NUMA nodes, sockets) a
node gets as many ranks as by slot, and its objects get them in turn.  SPAN deals ranks over the objects of all nodes
alike, so a node may get more ranks than it has slots as long as the slots of all nodes suffice.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.mapping.slot_counts import app_by_app, even
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.jobmap import Placement
    from mslaunch.plan.mapping.slot_counts import MappingJob, SlotCounts
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView

    Share = Callable[[SlotCounts, Sequence[int], int], list[int]]


def map_by_slot(job: MappingJob) -> list[Placement]:
    """The mapper `slot`: the free slots of each node in turn."""
    return _mapped(job, by_slot)


def map_by_node(job: MappingJob) -> list[Placement]:
    """The mapper `node`: ranks dealt round the nodes."""
    return _mapped(job, by_node)


def _mapped(job: MappingJob, share: Share) -> list[Placement]:
    return app_by_app(job, lambda app, mine, np: [[WHOLE] * count for count in counts(job, share, app, mine, np)])


def counts(job: MappingJob, share: Share, app: int, mine: Sequence[int], np: int | None) -> list[int]:
    """Ranks of an app context for each of the nodes `mine`: as `share` deals them, or with -N n beside it, n each."""
    if job.policy.ppr:
        from mslaunch.plan.mapping.ppr import stepped

        return stepped(job.slots, job.machines, mine, np, job.policy.ppr, job.policy.map_by == "slot")
    return share(job.slots, mine, job.slots.total(app) if np is None else np)


def by_slot(slots: SlotCounts, mine: Sequence[int], wanted: int) -> list[int]:
    """Ranks for each of the nodes `mine`: free slots in order, then an even share of the rest, the first one more.

    Raises AllocationError if there is no room.
    """
    slots.check(mine, wanted)
    return slots.filled(mine, [0] * len(mine), wanted)


def by_node(slots: SlotCounts, mine: Sequence[int], wanted: int) -> list[int]:
    """Ranks for each of the nodes `mine`, alike for all as far as slots allow; raises AllocationError.

    More ranks than slots: alike for all, whatever their slots.
    """
    slots.check(mine, wanted)
    free = [slots.free(node) for node in mine]
    if wanted > sum(free):
        return slots.shared(mine, [0] * len(mine), wanted)
    return _passes(free, wanted)


def _passes(free: Sequence[int], wanted: int) -> list[int]:
    """Pass by pass, each node takes the average of the rest, as far as it can, and the first nodes one more.

    The average of a pass is over the nodes that took something in the pass before, also if they are full now.
    """
    made = [0] * len(free)
    takers = len(free)
    while wanted:
        average = max(1, wanted // takers)
        extra = wanted - average * takers
        takers = 0
        for at, most in enumerate(free):
            if made[at] < most and wanted:
                share = min(average + (extra > 0), most - made[at], wanted)
                extra -= 1
                takers += 1
                made[at] += share
                wanted -= share
    return made


# --- by object


def map_by_object(job: MappingJob) -> list[Placement]:
    """The mapper of each of LEVELS."""
    level = job.policy.map_by

    def share(slots: SlotCounts, mine: Sequence[int], wanted: int) -> list[int]:
        return span(slots, job.machines, mine, wanted, level) if job.policy.span else by_slot(slots, mine, wanted)

    def places(app: int, mine: Sequence[int], np: int | None) -> list[list[Locale]]:
        made = counts(job, share, app, mine, np)
        return [turns(job.machines, node, level, job.slots.used[node], count) for node, count in zip(mine, made)]

    return app_by_app(job, places)


def turns(machines: TopologyView, node: int, level: str, before: int, count: int) -> list[Locale]:
    """The locales of `count` ranks more on a node that has `before`: its objects of the level in turn.

    A node without such objects is taken as a whole.
    """
    objects = machines.objects(node, level)
    if not objects:
        return [WHOLE] * count
    return [objects[at % len(objects)] for at in range(before, before + count)]


def span(slots: SlotCounts, machines: TopologyView, mine: Sequence[int], wanted: int, level: str) -> list[int]:
    """Ranks for each of the nodes `mine`: alike for all objects of the level, the first objects one more.

    Raises AllocationError if the slots of all nodes do not suffice.
    """
    slots.check(mine, wanted)
    objects = [machines.count(node, level) for node in mine]
    if not any(objects):
        return by_slot(slots, mine, wanted)
    objects = [max(1, many) for many in objects]
    each = max(1, wanted // sum(objects))
    extra = max(0, wanted - each * sum(objects))
    made, left = [], wanted
    for node, many in zip(mine, objects):
        more = min(extra, many)
        extra -= more
        made.append(min(many * each + more, left, slots.limit(node)))
        if made[-1]:
            slots.first = node
        left -= made[-1]
    kept_away = even([slots.limit(node) - count for node, count in zip(mine, made)], left)  # by max_slots
    return [count + more for count, more in zip(made, kept_away)]
