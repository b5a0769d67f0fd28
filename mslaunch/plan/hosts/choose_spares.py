"""Spares: hosts leave an allocation, and others that stood by come in: which one takes the place of which.

Whatever names nodes by their number (the hosts of each program, a rankfile, --map-by seq) is kept right.  A host that
has left stands by from then on, behind all spares, since it may have been started again when the next one is lost.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mslaunch.datamodel.jobmap import Allocation, Node, RankLine


def missing(allocation: Allocation, gone: Collection[str]) -> list[Node]:
    """The hosts that have left; `gone` are the names of all that cannot be reached."""
    return [node for node in allocation.nodes if node.name in gone]


def ready_spares(allocation: Allocation, gone: Collection[str]) -> list[Node]:
    """Spares in the order in which they are used: first, for each missing host, one with as many slots."""
    left = [node for node in allocation.spares if node.name not in gone]
    first: list[Node] = []
    for old in missing(allocation, gone)[: len(left)]:
        first.append(next((node for node in left if _fits(node, old)), left[0]))
        left.remove(first[-1])
    return [*first, *left]


def _fits(new: Node, old: Node) -> bool:
    return new.slots is None or old.slots is None or new.slots >= old.slots


def exchange(allocation: Allocation, gone: Collection[str], comes: Sequence[Node], whole: bool = False) -> Allocation:
    """The nodes `gone` (names) leave, and the spares `comes` come in: each in the place of one, others behind the last.

    In the place of another, a host has as many slots as that had, if it has so many; `whole`: all of its own.
    """
    waiting = list(comes)
    nodes: list[Node] = []
    left: list[Node] = []
    index: dict[int, int] = {}  # of the nodes that had a place, or have one now in the place of another
    for at, node in enumerate(allocation.nodes):
        stays = node.name not in gone
        if not stays:
            left.append(node._replace(spare=True))
        if stays or waiting:
            index[at] = len(nodes)
            nodes.append(node if stays else _replacing(node, waiting.pop(0), whole))
    more = range(len(nodes), len(nodes) + len(waiting))
    came = {node.name for node in comes}
    return allocation._replace(
        nodes=(*nodes, *(node._replace(spare=False) for node in waiting)),
        apps=tuple((*_at(app, index), *more) for app in allocation.apps),
        sequences=tuple(_at(sequence, index) for sequence in allocation.sequences),
        ranks=_lines(allocation, index),
        spares=(*(node for node in allocation.spares if node.name not in came), *left),
    )


def _replacing(old: Node, new: Node, whole: bool) -> Node:
    """The spare `new` in the place of `old`; one whose slots nobody said has as many as that."""
    slots = new.slots
    if slots is None or (not whole and old.slots is not None and slots > old.slots):
        slots = old.slots
    return new._replace(slots=slots, spare=False)


def _lines(allocation: Allocation, index: dict[int, int]) -> tuple[RankLine, ...]:
    """The lines of a rankfile that are left, numbered anew if there are fewer."""
    kept = [line._replace(node=index[line.node]) for line in allocation.ranks if line.node in index]
    if len(kept) < len(allocation.ranks):
        order = sorted(kept, key=lambda line: line.rank)
        kept = [line._replace(rank=rank) for rank, line in enumerate(order)]
    return tuple(kept)


def _at(places: Sequence[int], index: dict[int, int]) -> tuple[int, ...]:
    return tuple(index[at] for at in places if at in index)
