"""Patterns: text with a letter after each `%`, as hydra writes names of files and what stands before a line.

It knows no files and no streams.  What people may write is `LETTERS`, hydra's own (observed of 5.0.2: %g counts the
worlds from 0, %p the hosts); the rooms next door use more letters in patterns of their own.  The one surprising thing:
a letter that means nothing is a refusal before the job begins, where hydra fails at the first line that a rank prints.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.launcher.worlds import Worlds
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LETTERS = "rgph%"


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
        todo = "write %r for the rank, %g the group (0), %p the number of the host, %h its name, %% for a percent sign"
        raise UsageError(f"cannot read the pattern {pattern!r}: {what}", where, todo) from None


class Places:
    """Where ranks are: host and number of the host for each, world after world."""

    def __init__(self, rows: Iterable[tuple[str, int]]) -> None:
        self.rows = list(rows)
        self.worlds = Worlds(len(self.rows))

    def add_world(self, rows: Iterable[tuple[str, int]]) -> range:
        """The ranks of one more world; returns their numbers."""
        self.rows += rows
        first = self.worlds.add(len(self.rows) - self.worlds.ranks)
        return range(first, self.worlds.ranks)


def values_of(rank: int, places: Places) -> dict[str, str]:
    """What the letters stand for; %w, which is ours alone, is the number of the world.

    The scheduler lives on the host of rank 0.
    """
    host, node = places.rows[0 if rank == SERVICE else rank]
    world, own = (1, "scheduler") if rank == SERVICE else places.worlds.of(rank)
    return {"r": str(own), "g": str(world - 1), "p": str(node), "h": host, "%": "%", "w": str(world)}
