"""Patterns: text with a letter after each `%`, as hydra writes names of files and what stands before a line.

It knows no files and no streams.  What people may write is `LETTERS`, hydra's own (observed of 5.0.2: %g is always 0,
%p counts the hosts); the rooms next door use more letters in patterns of their own.  The one surprising thing: a letter
that means nothing is a refusal before the job begins, where hydra fails at the first line that a rank prints.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import SERVICE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def values_of(rank: int, places: Sequence[tuple[str, int]]) -> dict[str, str]:
    """What the letters stand for; `places` has host and number of the host for each rank.

    The scheduler lives on the host of rank 0.
    """
    host, node = places[0 if rank == SERVICE else rank]
    return {"r": "scheduler" if rank == SERVICE else str(rank), "g": "0", "p": str(node), "h": host, "%": "%"}
