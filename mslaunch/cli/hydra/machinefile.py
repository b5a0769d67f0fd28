"""The hosts of the hydra dialect: its host list, its hostfile, and which host each rank goes to.

As in MPICH's mpiexec.hydra 5.0.2, by experiment: ranks go to the hosts in the order in which they are named, and then
again from the first, so slots never run out; adjacent entries of one host are joined; -ppn replaces all counts.  The
slots of an entry are the ranks that it gets in each round.
"""

from __future__ import annotations

from mslaunch.errors import HostfileError, UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mslaunch.datamodel.jobmap import HostLine

MOST = 65536  #: ranks on hosts that are named, and ranks of one host


def from_list(text: str, where: str) -> list[HostLine]:
    """`a,b:2,joe@c`; ranges and addresses as with -H.  Raises `UsageError`, which names `where`."""
    from mslaunch.plan.hosts.hostfile import parse_hosts

    if any(word.strip()[:1] in ("+", "^") for word in text.split(",")):
        raise UsageError("relative and excluded hosts mean nothing to hydra", where, "write the names of the hosts")
    entries = list(parse_hosts(text, where))
    if not entries:
        raise UsageError("no host is named", where, f"write {where} node1,node2:4")
    for entry in entries:
        if not entry.slots:
            todo = f"write how many: {entry.name}:4, or leave the host out"
            raise UsageError(f"{entry.name} gets no ranks", where, todo)
    return entries


def from_file(text: str, path: str) -> list[HostLine]:
    """A file of hydra's: a line is `HOST[:N] [user=NAME]`; `#` begins a comment.  Raises `HostfileError`."""
    entries: list[HostLine] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            entries += _line(words, f"{path}:{number}")
    if not entries:
        raise HostfileError("it names no host", path, "add a line like node1:4")
    return entries


def ordered(entries: Sequence[HostLine], how: str) -> list[HostLine]:
    """-order-nodes: by their counts; hosts with equal counts stay as they are."""
    return sorted(entries, key=lambda entry: entry.slots or 0, reverse=how == "descending")


def merged(entries: Iterable[HostLine]) -> list[HostLine]:
    """The entries, with adjacent ones of one host joined."""
    found: list[HostLine] = []
    for entry in entries:
        if found and (found[-1].name, found[-1].user) == (entry.name, entry.user):
            found[-1] = entry._replace(slots=(found[-1].slots or 0) + (entry.slots or 0))
        else:
            found.append(entry)
    return found


def deal(entries: Sequence[HostLine]) -> Iterator[HostLine]:
    """The host of rank 0, of rank 1, and so on without end, each with one slot."""
    seats = [(entry if entry.slots == 1 else entry._replace(slots=1), entry.slots or 0) for entry in entries]
    while True:
        for seat, count in seats:
            yield from [seat] * count


def by_rankmap(entries: Sequence[HostLine], numbers: Sequence[int]) -> Iterator[HostLine]:
    """The host of each rank that -rankmap lists.  Raises `UsageError` for a number that no host has."""
    for number in numbers:
        if number >= len(entries):
            raise UsageError(f"there is no host {number} among {len(entries)}", "-rankmap", "count hosts from 0")
        yield entries[number]._replace(slots=1)


def _line(words: Sequence[str], where: str) -> list[HostLine]:
    """The entries of one line; several if its name has a range."""
    user = ""
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key != "user" or not value:
            raise HostfileError(f"cannot read {word!r}", where, _HINTS.get(key, "a line is HOST[:N] [user=NAME]"))
        if user:
            raise HostfileError("user= is given twice", where, "keep one of them")
        user = value
    try:
        entries = from_list(words[0] if not user else f"{user}@{words[0]}", where)
    except UsageError as error:
        raise HostfileError(error.what, where, error.todo) from None
    if len({entry.name for entry in entries}) > 1 and "[" not in words[0]:
        raise HostfileError("there is a comma in it", where, "write one host a line")
    return entries


_HINTS = {
    "slots": "hydra's files have HOST:N; a hostfile with slots=N is for mpirun's --hostfile",
    "max_slots": "hydra's files have HOST:N; a hostfile with max_slots=N is for mpirun's --hostfile",
    "binding": "one binding for all hosts is given by -bind-to",
    "username": "write user=NAME",
}
