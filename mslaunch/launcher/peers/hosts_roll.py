"""The roll of a meeting: which hosts have come, whether they are enough, and which numbers they get."""

from __future__ import annotations

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.request import HostMeeting


class Arrival(NamedTuple):
    """A command that has come, and what its command line says."""

    host: str
    ranks: int
    least: int
    most: int
    run_id: str


class Places(NamedTuple):
    """What each command is told, in the order of the arrivals."""

    nodes: tuple[int, ...]  # its number
    sizes: tuple[int, ...]  # ranks, by number


def own_arrival(asked: HostMeeting, host: str) -> Arrival:
    """That of this command."""
    return Arrival(host, asked.ranks, asked.least, asked.most, asked.run_id)


def objection(first: Arrival, new: Arrival, here: int) -> str:
    """Why `new` cannot take part where `first` is the host, and `here` commands have come; "": it can."""
    if new.run_id != first.run_id:
        return f"another job meets there: its --rdzv-id is {first.run_id!r}, and {new.host} has {new.run_id!r}"
    if (new.least, new.most) != (first.least, first.most):
        return f"--nnodes is {nodes_text(first)} on {first.host}, and {nodes_text(new)} on {new.host}"
    if here >= first.most:
        return f"{counted(first.most, 'host')} have come already, as many as --nnodes says"
    return ""


def nodes_text(one: Arrival) -> str:
    """--nnodes as one writes it."""
    return str(one.most) if one.least == one.most else f"{one.least}:{one.most}"


def numbered(arrivals: Sequence[Arrival]) -> Places:
    """Numbers for all: the first, on whose host the others meet, gets 0, and the others follow by their names."""
    others = sorted(range(1, len(arrivals)), key=lambda at: (natural(arrivals[at].host), at))
    order = [0, *others]
    nodes = [0] * len(order)
    for number, at in enumerate(order):
        nodes[at] = number
    return Places(tuple(nodes), tuple(arrivals[at].ranks for at in order))


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which node2 comes before node10."""
    parts: list[str] = []
    for letter in name:
        if parts and parts[-1][-1].isdecimal() == letter.isdecimal():
            parts[-1] += letter
        else:
            parts.append(letter)
    return [
        (len(part.lstrip("0")) if part.isdecimal() else -1, part.lstrip("0") if part.isdecimal() else part)
        for part in parts
    ]
