"""Mappers by slot and by node: how many ranks each node gets.

Rules of Open MPI 4.1.4, by experiment.  Where nodes fill up by node, the others are not levelled: 9 3 9 slots with 11
ranks are 5 3 3, since shares are worked out pass by pass.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.mapping.app_by_app import app_by_app
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.jobmap import Placement
    from mslaunch.plan.mapping.app_by_app import MappingJob
    from mslaunch.plan.mapping.slot_counts import SlotCounts

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
