"""Hosts of the hydra dialect: its hostfile, its host list, and which host each rank goes to.

The rules are those of MPICH's mpiexec.hydra 5.0.2, by experiment: hosts take their ranks in the order in which they are
named and begin again with the first, so nothing is ever refused for lack of slots; neighbours that are one host are
one entry; -ppn replaces all counts.  It knows no options by name.  The surprising thing is the result: a host for each
rank, written out, which floor 2 maps as a sequence; that floor knows nothing of hydra's dealing.
"""

from __future__ import annotations

from mslaunch.errors import HostfileError, UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mslaunch.datamodel.hosts import HostLine

MOST = 65536  #: ranks on hosts that are named, and ranks of one host


class MachineLine(NamedTuple):
    """A host where the dealing comes by, and how many ranks it takes each time."""

    host: str  # as -H takes it: node1, joe@node1, [fd00::1]
    ranks: int


def from_list(text: str, where: str) -> list[MachineLine]:
    """`a,b:2,joe@c`; ranges and addresses as with -H.  Raises `UsageError`, which names `where`."""
    from mslaunch.plan.hosts.hostfile import parse_hosts

    if any(word.strip()[:1] in ("+", "^") for word in text.split(",")):
        raise UsageError("relative and excluded hosts mean nothing to hydra", where, "write the names of the hosts")
    try:
        lines = parse_hosts(text)
    except UsageError as error:
        raise UsageError(error.what, where, error.todo) from None
    entries = [_entry(line, where) for line in lines]
    if not entries:
        raise UsageError("no host is named", where, f"write {where} node1,node2:4")
    return entries


def from_file(text: str, path: str) -> list[MachineLine]:
    """A file of hydra's: a line is `HOST[:N] [user=NAME]`; `#` begins a comment.  Raises `HostfileError`."""
    entries: list[MachineLine] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            entries += _line(words, f"{path}:{number}")
    if not entries:
        raise HostfileError("it names no host", path, "add a line like node1:4")
    return entries


def ordered(entries: Sequence[MachineLine], how: str) -> list[MachineLine]:
    """-order-nodes: by their counts; hosts of one size stay as they are."""
    return sorted(entries, key=lambda entry: entry.ranks, reverse=how == "descending")


def merged(entries: Iterable[MachineLine]) -> list[MachineLine]:
    """Neighbours that are one host, as one."""
    found: list[MachineLine] = []
    for entry in entries:
        if found and found[-1].host == entry.host:
            found[-1] = MachineLine(entry.host, found[-1].ranks + entry.ranks)
        else:
            found.append(entry)
    return found


def deal(entries: Sequence[MachineLine]) -> Iterator[str]:
    """The host of rank 0, of rank 1, and so on without end."""
    while True:
        for entry in entries:
            for _ in range(entry.ranks):
                yield entry.host


def by_rankmap(entries: Sequence[MachineLine], numbers: Sequence[int]) -> Iterator[str]:
    """The same for -rankmap, which has an end.  Raises `UsageError` for a number that is no host's."""
    for number in numbers:
        if number >= len(entries):
            raise UsageError(f"there is no host {number} among {len(entries)}", "-rankmap", "count hosts from 0")
        yield entries[number].host


def _entry(line: HostLine, where: str) -> MachineLine:
    if not line.slots:
        raise UsageError(f"{line.name} gets no ranks", where, f"write how many: {line.name}:4, or leave the host out")
    name = f"[{line.name}]" if ":" in line.name else line.name
    return MachineLine(name if line.user is None else f"{line.user}@{name}", line.slots)


def _line(words: Sequence[str], where: str) -> list[MachineLine]:
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
    if len({entry.host for entry in entries}) > 1 and "[" not in words[0]:
        raise HostfileError("there is a comma in it", where, "write one host a line")
    return entries


_HINTS = {
    "slots": "hydra's files have HOST:N; a hostfile with slots=N is for mpirun's --hostfile",
    "max_slots": "hydra's files have HOST:N; a hostfile with max_slots=N is for mpirun's --hostfile",
    "binding": "one binding for all hosts is given by -bind-to",
    "username": "write user=NAME",
}
