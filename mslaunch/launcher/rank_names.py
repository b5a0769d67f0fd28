"""Numbers of ranks in frames, and the names that texts have for them.

World 1 is that of the job, 2 and those after it were made by MPI_Comm_spawn; the numbers of each follow on those of the
one before.  Numbers below 0 are services.  A user never sees the number of a spawned rank, but `rank 1 of world 2`,
which is [2,1] in a tag and 2/rank.1 among the log files.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class RankNames:
    """The names of the ranks of worlds with these sizes; the first rank has the number `first`."""

    def __init__(self, *sizes: int, first: int = 0) -> None:
        self._firsts: list[int] = []
        self.end = first  #: the number of the next rank
        for size in sizes:
            self.add(size)

    def add(self, size: int, first: int = 0) -> int:
        """One more world; returns the number of its rank 0.  `first` counts for the first world only."""
        first = self.end if self._firsts else max(self.end, first)
        self._firsts.append(first)
        self.end = first + size
        return first

    def of(self, rank: int) -> tuple[int, int]:
        """The number of the world of `rank`, and its rank in that world; in the first world this is its number."""
        number = sum(first <= rank for first in self._firsts)
        return (number, rank - self._firsts[number - 1]) if number > 1 else (1, rank)

    def size(self, number: int) -> int:
        """How many ranks a world has."""
        ends = [*self._firsts[1:], self.end]
        return ends[number - 1] - self._firsts[number - 1]

    def name(self, rank: int) -> str:
        """`rank 3`, `rank 1 of world 2`, or the name of a service."""
        if is_service(rank):
            return service_info(rank).title
        number, own = self.of(rank)
        return f"rank {own}" if number == 1 else f"rank {own} of world {number}"

    def names(self, ranks: Iterable[int]) -> str:
        """`ranks 0-2, 5`, `rank 3 and ranks 0-1 of world 2`."""
        worlds: dict[int, list[int]] = {}
        for rank in sorted(ranks):
            number, own = self.of(rank)
            worlds.setdefault(number, []).append(own)
        parts = [ranks_text(own) + (f" of world {number}" if number > 1 else "") for number, own in worlds.items()]
        return " and ".join(parts)


def ranks_text(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    from mslaunch.plan.number_ranges import ranges

    text = ranges(sorted(numbers), ", ")
    return f"rank {text}" if len(numbers) == 1 else f"ranks {text}"
