"""Published names (MPI_Publish_name): what ranks publish, look up, and wait for.

Values are passed on unread.  Each family of MPI libraries has names of its own, since the values of one mean nothing to
the other.  Some names are removed once they were read: Open MPI publishes the same two for every MPI_Comm_accept on a
port, and the second would fail if those of the first were still there.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.mpi.node_quota import NodeQuota
from mslaunch.protocol.mpi import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mslaunch.protocol.mpi import Question

HELD = 1 << 24  #: bytes of names and values that a job may have published at a time
_ENTRY = 200  # bytes that a name costs besides
#: lookups of a node that wait, and the bytes of what they wait for.  Each of its ranks waits for one at a time
_WAITING, _WAITING_SIZE = 1024, 1 << 20


class _Lookup(NamedTuple):
    """A lookup that waits."""

    node: int
    question: Question
    member: str  # that asks
    names: frozenset[tuple[str, str]]  # family, name

    @property
    def size(self) -> int:
        return sum(_ENTRY + len(name) for name in self.question.fields["names"])


class _LookupIndex:
    """The lookups that wait, by the names that they wait for and by who waits: nobody need look at all of them."""

    def __init__(self) -> None:
        self._lookups: dict[int, _Lookup] = {}  # by the order in which they came
        self._by_name: dict[tuple[str, str], dict[int, None]] = {}
        self._by_member: dict[str, dict[int, None]] = {}
        self._number = 0

    def add(self, lookup: _Lookup) -> None:
        self._number += 1
        self._lookups[self._number] = lookup
        for name in lookup.names:
            self._by_name.setdefault(name, {})[self._number] = None
        self._by_member.setdefault(lookup.member, {})[self._number] = None

    def remove(self, number: int) -> _Lookup:
        lookup = self._lookups.pop(number)
        for name in lookup.names:
            _discard(self._by_name, name, number)
        _discard(self._by_member, lookup.member, number)
        return lookup

    def of(self, member: str) -> list[int]:
        return list(self._by_member.get(member, ()))

    def all_for(self, names: Iterable[tuple[str, str]]) -> list[tuple[int, _Lookup]]:
        """Those that wait for any of `names`, in order."""
        numbers = {number for name in names for number in self._by_name.get(name, ())}
        return [(number, self._lookups[number]) for number in sorted(numbers)]

    def on(self, node: int) -> list[tuple[int, _Lookup]]:
        return [(number, lookup) for number, lookup in self._lookups.items() if lookup.node == node]


class _Name(NamedTuple):
    node: int  # of the owner
    owner: str  # member
    blob: bytes
    once: bool  # it is gone once it was read


class NameService:
    """The names of one job.  Methods raise KeyError and ValueError for malformed questions."""

    def __init__(
        self,
        answer: Callable[[int, Answer], None],
        full: Callable[[int], bool],
        when_room: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """`answer(node, answer)` sends one; `full` and `when_room`: those of `JobAgents`."""
        self._answer = answer
        self._full = full
        self._when_room = when_room
        self._late: set[int] = set()  # nodes whose lookups wait for room
        self._names: dict[tuple[str, str], _Name] = {}
        self._size = 0
        self._waiting = _LookupIndex()
        self._quota = NodeQuota(_WAITING, _WAITING_SIZE)

    def publish(self, node: int, question: Question) -> None:
        """Publish all of the names, or none if one is taken, and answer the lookups that waited for them."""
        (family,), (owner,) = question.fields["family"], question.fields["from"]
        once = bool(list(question.fields.get("once", ())))
        names = [(family, name) for name in question.fields["names"]]
        if len(names) != len(question.blobs):
            raise ValueError("a value for each name")
        taken = next((name for name in names if name in self._names), None)
        new = {name: _Name(node, owner, blob, once) for name, blob in zip(names, question.blobs)}
        size = sum(_weight(name[1], entry) for name, entry in new.items())
        if taken:
            self._answer(node, Answer(question.number, f"exists:{taken[1]}"))
        elif self._size + size > HELD:
            self._answer(node, Answer(question.number, f"full:more than {HELD >> 20} MiB are published"))
        else:
            self._names.update(new)
            self._size += size
            self._answer(node, Answer(question.number))
            self._answer_waiting(self._waiting.all_for(new))

    def _answer_waiting(self, waiting: Iterable[tuple[int, _Lookup]]) -> None:
        """Answer those of `waiting` that can be; one name may be the answer to a thousand lookups."""
        for number, waits in waiting:
            if not all(map(self._names.__contains__, waits.names)):
                continue
            if self._full(waits.node):
                if waits.node not in self._late:
                    self._late.add(waits.node)
                    self._when_room(waits.node, lambda node=waits.node: self._has_room(node))  # type: ignore[misc]
            else:
                self._remove(number)
                self.lookup(waits.node, waits.question)

    def _remove(self, number: int) -> None:
        waits = self._waiting.remove(number)
        self._quota.give(waits.node, waits.size)

    def _has_room(self, node: int) -> None:
        self._late.discard(node)
        self._answer_waiting(self._waiting.on(node))

    def lookup(self, node: int, question: Question) -> None:
        """Answer with those of the names that are published; a question that waits, when all are."""
        (family,) = question.fields["family"]
        wanted = list(question.fields["names"])
        found = {name: self._names[family, name] for name in wanted if (family, name) in self._names}
        if len(found) < len(set(wanted)) and list(question.fields.get("wait", ())):
            (member,), names = question.fields["from"], frozenset((family, name) for name in wanted)
            waits = _Lookup(node, question._replace(blobs=()), member, names)
            if self._quota.take(node, waits.size):
                self._waiting.add(waits)
            else:
                self._answer(node, Answer(question.number, f"full:more than {_WAITING} lookups wait"))
            return
        for name, entry in found.items():
            if entry.once:
                self._drop(family, name)
        owners = [entry.owner for entry in found.values()]
        blobs = tuple(entry.blob for entry in found.values())
        error = "" if found else f"missing:{' '.join(wanted)}"
        self._answer(node, Answer(question.number, error, {"names": list(found), "from": owners}, blobs))

    def unpublish(self, node: int, question: Question) -> None:
        """Remove those of the names that a rank of this node has published; to others they are missing."""
        (family,) = question.fields["family"]
        found = ((name, self._names.get((family, name))) for name in question.fields["names"])
        gone = [self._drop(family, name) for name, entry in found if entry and entry.node == node]
        error = "" if any(gone) else f"missing:{' '.join(question.fields['names'])}"
        self._answer(node, Answer(question.number, error))

    def _drop(self, family: str, name: str) -> bool:
        entry = self._names.pop((family, name), None)
        if entry:
            self._size -= _weight(name, entry)
        return entry is not None

    def ended(self, member: str) -> None:
        """A rank has ended: its lookups are dropped.  What it has published stays, as with mpirun."""
        for number in self._waiting.of(member):
            self._remove(number)


def _discard(index: dict[Any, dict[int, None]], key: object, number: int) -> None:
    """Remove a number from one entry of an index, and the entry with its last."""
    del index[key][number]
    if not index[key]:
        del index[key]


def _weight(name: str, entry: _Name) -> int:
    return len(name) + len(entry.blob) + _ENTRY
