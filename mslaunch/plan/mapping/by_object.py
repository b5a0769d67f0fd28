"""Mapper by object: ranks in turn to the cores, caches, NUMA nodes or sockets of their nodes; and SPAN.

How many ranks a node gets is as by slot; here each gets its locale, the object that binding starts from.  Rules of Open
MPI 4.1.4, by experiment.  SPAN deals ranks over the objects of all nodes alike, so a node may get more ranks than it
has slots as long as the slots of all nodes suffice.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.mapping.app_by_app import app_by_app
from mslaunch.plan.mapping.by_slot import by_slot, counts
from mslaunch.plan.mapping.slot_counts import even
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import Placement
    from mslaunch.plan.mapping.app_by_app import MappingJob
    from mslaunch.plan.mapping.slot_counts import SlotCounts
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView


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
    objects = machines.count(node, level)
    if not objects:
        return [WHOLE] * count
    return [(level, at % objects) for at in range(before, before + count)]


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
