"""Patterns: text with a letter after each `%`, as hydra writes names of files and what stands before a line.

It knows no files and no streams.  What people may write is `LETTERS`, hydra's own (observed of 5.0.2: %g counts the
worlds from 0, %p the hosts) and %a, which is msrun's {ip}; the rooms next door use more letters in patterns of their
own.  The one surprising thing: a letter that means nothing is a refusal before the job begins, where hydra fails at the
first line that a rank prints.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import FIRST_SERVER, SERVICE
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
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
    """Raises `UsageError`, which names `where`, if a user's pattern has a letter that means nothing."""
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
    """Does a pattern ask for the addresses of hosts, so that these must have been reached before files are opened?"""
    return any("%a" in (text or "").replace("%%", "") for text in (policy.outfile, policy.errfile, policy.prepend))


class PatternValues:
    """Where ranks are: host and number of the host for each, world after world; also where the services are.

    The first rank has the number `first`.  `addresses` tells the address of a host by its number.
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
        return self._service if rank < 0 else self._rows[rank - self._first]

    def address(self, rank: int) -> str:
        """Of the host of a rank or service; its name, if nobody told us."""
        host, node = self.row(rank)
        return self._addresses(node) if self._addresses else host

    def add_world(self, rows: Iterable[tuple[str, int]]) -> range:
        """The ranks of one more world; returns their numbers."""
        before = self.ranks.stop
        self._rows += rows
        self.worlds.add(self.ranks.stop - before)
        return range(before, self.ranks.stop)


def service_name(number: int) -> str:
    """What stands for the rank of a service: `scheduler`, `server.0`."""
    return "scheduler" if number == SERVICE else f"server.{FIRST_SERVER - number}"


def values_of(rank: int, places: PatternValues) -> dict[str, str]:
    """What the letters stand for; %w, which is ours alone, is the number of the world."""
    host, node = places.row(rank)
    world, own = (1, service_name(rank)) if rank < 0 else places.worlds.of(rank)
    values = {"r": str(own), "g": str(world - 1), "p": str(node), "h": host, "%": "%", "w": str(world)}
    values["a"] = places.address(rank)
    return values
