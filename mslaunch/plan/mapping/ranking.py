"""Ranking: the numbers of the ranks of one app context, once mapping has settled their nodes and objects.

Rules of Open MPI 4.1.4, by experiment.  Nodes come in the order in which they got their first rank; `fill` takes all
ranks of an object before the next object, `span` one of each object on all nodes.  A rank counts for every object that
its locale touches, so ranks that were mapped to a whole node are the first object's as long as there are any, and
`--rank-by core` after `--map-by slot` changes nothing.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mslaunch.datamodel.request import Policy
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView

    Taken = Mapping[int, Sequence[Locale]]  # node -> locales of its new ranks, in the order of mapping
    Row = tuple[int, Locale]


def ranked(taken: Taken, order: Sequence[int], policy: Policy, machines: TopologyView) -> list[Row]:
    """(node, locale) of each rank, in rank order; `order` has the nodes, `policy` is a settled one, and not by slot.

    Raises AllocationError if a node has none of the objects to rank by.
    """
    nodes = [node for node in order if taken.get(node)]
    if policy.rank_by == "node":
        return list(_by_node(taken, nodes))
    piles = {node: _RankPiles(taken[node], node, policy.rank_by, machines) for node in nodes}
    if policy.rank_how == "span":
        return list(_round([piles[node] for node in nodes]))
    if policy.rank_how == "fill":
        return [row for node in nodes for row in piles[node].filled()]
    return [row for node in nodes for row in _round([piles[node]])]


def _by_node(taken: Taken, nodes: Sequence[int]) -> Iterator[Row]:
    for turn in range(max((len(taken[node]) for node in nodes), default=0)):
        for node in nodes:
            if turn < len(taken[node]):
                yield node, taken[node][turn]


def _round(piles: Sequence[_RankPiles]) -> Iterator[Row]:
    """One rank of each object of each node, again and again."""
    while any(pile.left for pile in piles):
        for pile in piles:
            for number in range(pile.objects):
                yield from pile.next_on(number, 1)


class _RankPiles:
    """The ranks of a node that have no number yet, in piles of the same locale."""

    def __init__(self, locales: Sequence[Locale], node: int, level: str, machines: TopologyView) -> None:
        self.left = len(locales)
        self.objects = machines.count(node, level)
        if not self.objects:
            name = machines.nodes[node].name
            raise AllocationError(f"{name} has no {level}", f"--rank-by {level}", "rank by slot, node or core")
        self._node = node
        self._positions: dict[Locale, list[int]] = {}
        for at in reversed(range(len(locales))):
            self._positions.setdefault(locales[at], []).append(at)
        row = machines.topologies[node].row(level)
        self._on: dict[int, set[Locale]] = {}
        for locale in self._positions:
            for at in machines.inside(node, locale):
                self._on.setdefault(row[at], set()).add(locale)

    def next_on(self, number: int, most: int) -> Iterator[Row]:
        """The next ranks that touch this object, in the order of mapping, `most` of them at most."""
        for _ in range(most):
            here = [locale for locale in self._on.get(number, ()) if self._positions[locale]]
            if not here:
                return
            locale = min(here, key=lambda one: self._positions[one][-1])
            self._positions[locale].pop()
            self.left -= 1
            yield self._node, locale

    def filled(self) -> Iterator[Row]:
        """All ranks of the first object, then those of the next."""
        for number in range(self.objects):
            yield from self.next_on(number, self.left)
