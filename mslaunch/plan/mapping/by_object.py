"""Ranks to the objects of their nodes: in turn round the cores, caches, NUMA nodes or sockets; and SPAN.

Where a rank goes it takes from `byslot`; here it gets its locale, the object it is mapped to, which binding starts
from.  Rules of Open MPI 4.1.4, by experiment.  The surprising thing: with SPAN, which deals the ranks out over the
objects of all nodes alike, a node may get more ranks than it has slots as long as the slots of all nodes suffice.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.mapping.by_slot import by_slot, even
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.request import Policy
    from mslaunch.plan.mapping.slot_counts import SlotCounts
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView


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
    counts, left = [], wanted
    for node, many in zip(mine, objects):
        more = min(extra, many)
        extra -= more
        counts.append(min(many * each + more, left, slots.limit(node)))
        if counts[-1]:
            slots.first = node
        left -= counts[-1]
    kept_away = even([slots.limit(node) - count for node, count in zip(mine, counts)], left)  # by max_slots
    return [count + more for count, more in zip(counts, kept_away)]


def check_cpus(machines: TopologyView, node: int, locales: Sequence[Locale], policy: Policy) -> None:
    """With PE=n, an object has to have n cpus, and where ranks are bound, so has a node; raises AllocationError.

    What is not known yet is not checked.
    """
    if policy.pe < 1 or not machines.is_known(node):
        return
    for locale in dict.fromkeys(locales):
        if locale == WHOLE and policy.bind_to == "none":
            continue
        have = machines.cpus(node, locale, policy.hwthread_cpus)
        if have < policy.pe:
            cpus = counted(have, "hardware thread" if policy.hwthread_cpus else "core")
            thing = (
                f"{locale[0]} {locale[1]} of {machines.nodes[node].name}" if locale[0] else machines.nodes[node].name
            )
            raise AllocationError(
                f"{thing} has {cpus}, and each rank is to have {policy.pe}",
                f"PE={policy.pe}",
                "lower PE, or map by something larger, as --map-by socket or slot",
            )
