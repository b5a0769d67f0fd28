"""The participants of a meeting: who may take part, and which numbers their hosts get."""

from __future__ import annotations

from mslaunch.errors import counted, printable
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mslaunch.datamodel.request import HostMeeting


_NAME = 255  # characters of a host's name, as in DNS


class Participant(NamedTuple):
    """A command that takes part, and what its command line says."""

    host: str
    ranks: int
    least: int
    most: int
    run_id: str
    restarts: int = 0
    number: int | None = None  # where each command has been given one


class Places(NamedTuple):
    """What each command is told, in their order."""

    nodes: tuple[int, ...]  # its number
    sizes: tuple[int, ...]  # ranks, by number


def said_by(value: Any) -> Participant:
    """What a command says of itself.  Raises ValueError or its like for what has no meaning."""
    host, ranks, least, most, run_id, restarts, number = value
    given = None if number is None else int(number)
    found = Participant(one_line(host, _NAME), int(ranks), int(least), int(most), str(run_id), int(restarts), given)
    if found.ranks < 1 or found.restarts < 0 or not 0 <= (given or 0) < found.most:
        raise ValueError(value)
    return found


def one_line(text: object, most: int) -> str:
    """Text of another host for a terminal: its first `most` characters, on one line and printable."""
    return printable(" ".join(str(text)[:most].split()))


def own_entry(asked: HostMeeting, host: str) -> Participant:
    """That of this command."""
    return Participant(host, asked.ranks, asked.least, asked.most, asked.run_id, asked.restarts, asked.number)


def objection(first: Participant, new: Participant) -> str:
    """Why the line of `new` is none for the job whose host is `first`; "": it is one."""
    if new.run_id != first.run_id:
        return f"another job meets there: its --rdzv-id is {first.run_id!r}, and {new.host} has {new.run_id!r}"
    if (new.least, new.most) != (first.least, first.most):
        return f"--nnodes is {nodes_text(first)} on {first.host}, and {nodes_text(new)} on {new.host}"
    if new.restarts != first.restarts:
        return f"--max-restarts is {first.restarts} on {first.host}, and {new.restarts} on {new.host}"
    if (new.number is None) != (first.number is None):
        with_number, without = (first, new) if new.number is None else (new, first)
        return f"hosts have numbers for {with_number.host} (--node-rank), and none for {without.host} (c10d)"
    return ""


def no_place(here: Sequence[Participant], new: Participant) -> str:
    """Why there is no place for `new` beside those that have come; "": there is one."""
    if len(here) >= here[0].most:
        return f"{counted(here[0].most, 'host')} have come already, as many as --nnodes says"
    for one in here:
        if new.number is not None and new.number == one.number:
            return f"--node-rank is {new.number} on {one.host} and on {new.host}"
    return ""


def nodes_text(one: Participant) -> str:
    """--nnodes as one writes it."""
    return str(one.most) if one.least == one.most else f"{one.least}:{one.most}"


def numbered(participants: Sequence[Participant]) -> Places:
    """Numbers for all: those that they have, or the first, on whose host the others meet, gets 0.

    The others follow by their names then.
    """

    def place(at: int) -> tuple[int, list[tuple[int, str]], int]:
        return participants[at].number or 0, natural(participants[at].host), at

    order = [0, *sorted(range(1, len(participants)), key=place)]
    nodes = [0] * len(order)
    for number, at in enumerate(order):
        nodes[at] = number
    return Places(tuple(nodes), tuple(participants[at].ranks for at in order))


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which node2 comes before node10: by turns parts without digits, and numbers of any length."""
    import re

    parts = re.split("([0-9]+)", name)
    return [(len(bare), bare) if at % 2 else (0, bare) for at, bare in enumerate(part.lstrip("0") for part in parts)]
