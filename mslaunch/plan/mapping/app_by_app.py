"""Mapping app context by app context: the frame that the mappers by slot, node, object and pattern share.

Such a mapper says how many ranks each node gets and which object each of them is mapped to.  This module chooses the
nodes of each app context, counts the slots that are taken, and numbers the ranks.  The n-th rank on a node gets the
n-th object whatever its app context, so the ranks of a second program go on where those of the first end.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Placement
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Allocation
    from mslaunch.datamodel.request import Policy, Request
    from mslaunch.plan.mapping.slot_counts import SlotCounts
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView

    #: app context, its nodes, its -np -> for each of these nodes the locales of the new ranks
    Places = Callable[[int, Sequence[int], int | None], Sequence[Sequence[Locale]]]


class MappingJob(NamedTuple):
    """What a mapper is given."""

    request: Request
    policy: Policy  # settled: `map_by`, `rank_by` and `hwthread_cpus` are filled in
    allocation: Allocation
    slots: SlotCounts
    machines: TopologyView


def app_by_app(job: MappingJob, places: Places) -> list[Placement]:
    """The placements of all ranks, as `places` gives them for each app context."""
    return numbered(_rows(job, places))


def _rows(job: MappingJob, places: Places) -> Iterator[tuple[int, int, Locale]]:
    policy, slots, machines = job.policy, job.slots, job.machines
    for app, context in enumerate(job.request.apps):
        mine = slots.open_to(app, whole=bool(policy.ppr) and context.np is None)
        taken = dict(zip(mine, places(app, mine, context.np)))
        for node, locales in taken.items():
            if policy.pe:
                machines.check_cpus(node, locales, policy)
            slots.take(node, len(locales))
            slots.asked += len(locales)
        for node, locale in _ranked(taken, slots.mapped, policy, machines):
            yield app, node, locale


def _ranked(
    taken: Mapping[int, Sequence[Locale]], order: Sequence[int], policy: Policy, machines: TopologyView
) -> list[tuple[int, Locale]]:
    if policy.rank_by == "slot":  # nearly always, and without another module
        return [(node, locale) for node in order for locale in taken.get(node, ())]
    from mslaunch.plan.mapping.ranking import ranked

    return ranked(taken, order, policy, machines)


def numbered(rows: Iterable[tuple[int, int, Locale]]) -> list[Placement]:
    """Placements of (app, node, locale) in rank order: ranks and local ranks counted through."""
    locals_: dict[int, int] = {}
    placements = []
    for rank, (app, node, locale) in enumerate(rows):
        local = locals_.get(node, 0)
        locals_[node] = local + 1
        placements.append(Placement(rank, app, node, local, (), locale))
    return placements
