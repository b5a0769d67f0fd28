"""Which hosts measure the way to which others at the same time: rounds of pairs.  Pure.

In a round no host takes part in two measurements, so that none is slowed down by another.  Up to EVERY hosts all pairs
are measured, both ways; of more hosts each measures the way to the next, and random pairs follow (ROUNDS in all).
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Pair = tuple[str, str]

EVERY = 64  #: hosts
ROUNDS = 32  #: of more hosts


def rounds_of(names: Sequence[str], draw: Callable[[int], int]) -> list[list[Pair]]:
    """Rounds of (source, target); `draw(n)` is a random number below n."""
    if len(names) < 2:
        return []
    if len(names) <= EVERY:
        return [pairs for half in _tournament(list(names)) for pairs in (half, [(b, a) for a, b in half])]
    return [*_ring(names), *(_random_pairs(names, draw) for _ in range(ROUNDS - 3))]


def _tournament(names: list[str | None]) -> Iterable[list[Pair]]:
    """Each meets each other once, by the circle method: one stays, the others go round."""
    if len(names) % 2:
        names = [*names, None]
    half = len(names) // 2
    for _ in range(len(names) - 1):
        pairs = zip(names[:half], reversed(names[half:]))
        yield [(a, b) for a, b in pairs if a is not None and b is not None]
        names = [names[0], names[-1], *names[1:-1]]


def _ring(names: Sequence[str]) -> list[list[Pair]]:
    """Each to the next, in three rounds, the third only for the last of an odd number."""
    pairs = [(name, names[(at + 1) % len(names)]) for at, name in enumerate(names)]
    last = pairs[-1:] if len(names) % 2 else []
    even = pairs[: len(pairs) - len(last) : 2]
    return [part for part in (even, pairs[1 : len(pairs) - len(last) : 2], last) if part]


def _random_pairs(names: Sequence[str], draw: Callable[[int], int]) -> list[Pair]:
    left = list(names)
    pairs = []
    while len(left) > 1:
        first = left.pop(draw(len(left)))
        pairs.append((first, left.pop(draw(len(left)))))
    return pairs


def few_of_each(pairs: Iterable[Pair], most: int) -> list[Pair]:
    """Pairs without those of which a host stands in `most` others already."""
    counts: dict[str, int] = {}
    kept = []
    for pair in pairs:
        if all(counts.get(name, 0) < most for name in pair):
            kept.append(pair)
            counts.update((name, counts.get(name, 0) + 1) for name in pair)
    return kept


def apart(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """The same pairs in rounds in which no host stands twice."""
    rounds: list[tuple[set[str], list[Pair]]] = []
    for pair in pairs:
        free = next((row for row in rounds if row[0].isdisjoint(pair)), None)
        if free is None:
            free = set(), []
            rounds.append(free)
        free[0].update(pair)
        free[1].append(pair)
    return [members for _, members in rounds]
