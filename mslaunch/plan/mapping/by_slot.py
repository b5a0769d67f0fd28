"""How many ranks each node gets by slot and by node; by object it is as by slot.

Numbers in, numbers out: it knows no topology and numbers no rank.  The rules are Open MPI 4.1.4's, by experiment.

Two things surprise.  What --oversubscribe does by slot is not "start again at the first node": every node gets its free
slots and an even share of the rest, so 2 2 2 slots with 7 ranks are 3 2 2.  And by node, where nodes have fill up the
others are not levelled: 9 3 9 slots with 11 ranks are 5 3 3, for the shares are worked out pass by pass.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.plan.mapping.slot_counts import SlotCounts


def by_slot(slots: SlotCounts, mine: Sequence[int], wanted: int) -> list[int]:
    """Ranks for each of the nodes `mine`: free slots in order, then an even share of the rest, the first one more.

    Raises AllocationError if there is no room.
    """
    slots.check(mine, wanted)
    return filled(slots, mine, [0] * len(mine), wanted)


def filled(slots: SlotCounts, mine: Sequence[int], counts: Sequence[int], rest: int) -> list[int]:
    """`rest` more ranks on top of `counts`, by slot."""
    full = []
    for node, count in zip(mine, counts):
        more = min(rest, max(0, slots.free(node) - count))
        full.append(count + more)
        rest -= more
    return shared(slots, mine, full, rest)


def by_node(slots: SlotCounts, mine: Sequence[int], wanted: int) -> list[int]:
    """Ranks for each of the nodes `mine`, alike for all as far as slots allow; raises AllocationError.

    More ranks than slots: alike for all, whatever their slots.
    """
    slots.check(mine, wanted)
    free = [slots.free(node) for node in mine]
    if wanted > sum(free):
        return shared(slots, mine, [0] * len(mine), wanted)
    return _passes(free, wanted)


def shared(slots: SlotCounts, mine: Sequence[int], counts: Sequence[int], rest: int) -> list[int]:
    """`rest` more ranks on top of `counts`, alike for all nodes that have the room."""
    if not rest:
        return list(counts)
    room = [slots.room(node) - count for node, count in zip(mine, counts)]
    return [count + more for count, more in zip(counts, even(room, rest))]


def even(room: Sequence[int], wanted: int) -> list[int]:
    """`wanted` things dealt one at a time to places with so much room, in order; as if dealt, but in few steps."""
    counts = [0] * len(room)
    open_ = [at for at, most in enumerate(room) if most > 0]
    while wanted and open_:
        if wanted < len(open_):
            for at in open_[:wanted]:
                counts[at] += 1
            break
        step = min(wanted // len(open_), *(room[at] - counts[at] for at in open_))
        for at in open_:
            counts[at] += step
        wanted -= step * len(open_)
        open_ = [at for at in open_ if counts[at] < room[at]]
    return counts


def _passes(free: Sequence[int], wanted: int) -> list[int]:
    """Pass by pass, each node takes the average of the rest, as far as it can, and the first nodes one more.

    The average of a pass is over the nodes that took something in the pass before, also if they are full now.
    """
    counts = [0] * len(free)
    takers = len(free)
    while wanted:
        average = max(1, wanted // takers)
        extra = wanted - average * takers
        takers = 0
        for at, most in enumerate(free):
            if counts[at] < most and wanted:
                share = min(average + (extra > 0), most - counts[at], wanted)
                extra -= 1
                takers += 1
                counts[at] += share
                wanted -= share
    return counts
