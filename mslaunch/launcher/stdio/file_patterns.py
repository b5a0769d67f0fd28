"""Patterns of names of files and of line prefixes: a letter after each `%`.

The letters are those of hydra 5.0.2 as observed (%g counts the worlds from 0, %p the hosts) and %a, which is msrun's
{ip}; `line_prefix` and `log_layouts` add letters of their own.  A letter that means nothing is refused before the job
begins; hydra fails at the first line that a rank prints.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.rank_names import RankNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LETTERS = "rgpha%"


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """`pattern` with each `%` and its letter replaced by the letter's value; raises `KeyError` for another letter."""
    text, percent, rest = pattern.partition("%")
    while percent:
        text += values[rest[:1]]
        more, percent, rest = rest[1:].partition("%")
        text += more
    return text


def check(pattern: str, where: str) -> None:
    """Raises `UsageError`, which names `where`, for a letter that means nothing."""
    try:
        fill(pattern, dict.fromkeys(LETTERS, ""))
    except KeyError as error:
        what = f"%{error.args[0]} means nothing" if error.args[0] else "nothing follows its last %"
        todo = (
            "write %r for the rank, %g the group (0), %p the number of the host, %h its name, %a its address, "
            "%% for a percent sign"
        )
        raise UsageError(f"cannot read the pattern {pattern!r}: {what}", where, todo) from None


def needs_addresses(policy: OutputPolicy) -> bool:
    """Whether a pattern has %a: hosts must be connected before files are opened."""
    return any("%a" in (text or "").replace("%%", "") for text in (policy.outfile, policy.errfile, policy.prepend))


class PatternValues:
    """What the letters stand for, for each rank: `rows` has its host and the number of that host, world after world.

    `first` is the number of the first rank, `service` the row of services; `addresses` gives that of a host by number.
    """

    def __init__(
        self,
        rows: Iterable[tuple[str, int]],
        first: int = 0,
        service: tuple[str, int] | None = None,
        addresses: Callable[[int], str] | None = None,
    ) -> None:
        self._rows = list(rows)
        self._first = first
        self._service = service or self._rows[0]
        self._addresses = addresses
        self.worlds = RankNames(len(self._rows), first=first)

    @property
    def ranks(self) -> range:
        """The numbers of all ranks."""
        return range(self._first, self._first + len(self._rows))

    def row(self, rank: int) -> tuple[str, int]:
        """Host of a rank or service, and number of that host."""
        return self._service if is_service(rank) else self._rows[rank - self._first]

    def address(self, rank: int) -> str:
        """Of the host of a rank or service; the name of the host if it is not known."""
        host, node = self.row(rank)
        return self._addresses(node) if self._addresses else host

    def add_world(self, rows: Iterable[tuple[str, int]]) -> range:
        """Add the ranks of a world; returns their numbers."""
        before = self.ranks.stop
        self._rows += rows
        self.worlds.add(self.ranks.stop - before)
        return range(before, self.ranks.stop)


def values_of(rank: int, places: PatternValues) -> dict[str, str]:
    """The value of each letter; %w, for our own patterns alone, is the number of the world from 1."""
    host, node = places.row(rank)
    world, own = (1, service_info(rank).name) if is_service(rank) else places.worlds.of(rank)
    values = {"r": str(own), "g": str(world - 1), "p": str(node), "h": host, "%": "%", "w": str(world)}
    values["a"] = places.address(rank)
    return values
