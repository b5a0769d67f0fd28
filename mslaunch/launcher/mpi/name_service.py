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
    from collections.abc import Callable

    from mslaunch.protocol.mpi import Question

HELD = 1 << 24  #: bytes of names and values that a job may have published at a time
_ENTRY = 200  # bytes that a name costs besides
#: lookups of a node that wait, and the bytes of what they wait for.  Each of its ranks waits for one at a time
_WAITING, _WAITING_SIZE = 1024, 1 << 20


class _Lookup(NamedTuple):
    """A lookup that waits."""

    node: int
    question: Question

    @property
    def size(self) -> int:
        return sum(_ENTRY + len(name) for name in self.question.fields["names"])


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
        self._waiting: list[_Lookup] = []
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
            self._answer_waiting()

    def _answer_waiting(self) -> None:
        """Answer those that can be; one name may be the answer to a thousand lookups."""
        waiting, self._waiting = self._waiting, []
        for waits in waiting:
            if self._full(waits.node):
                self._waiting.append(waits)
                if waits.node not in self._late:
                    self._late.add(waits.node)
                    self._when_room(waits.node, lambda node=waits.node: self._has_room(node))  # type: ignore[misc]
            else:
                self._quota.give(waits.node, waits.size)
                self.lookup(*waits)

    def _has_room(self, node: int) -> None:
        self._late.discard(node)
        self._answer_waiting()

    def lookup(self, node: int, question: Question) -> None:
        """Answer with those of the names that are published; a question that waits, when all are."""
        (family,) = question.fields["family"]
        wanted = list(question.fields["names"])
        found = {name: self._names[family, name] for name in wanted if (family, name) in self._names}
        if len(found) < len(set(wanted)) and list(question.fields.get("wait", ())):
            waits = _Lookup(node, question._replace(blobs=()))
            if self._quota.take(node, waits.size):
                self._waiting.append(waits)
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
        gone = [waits for waits in self._waiting if list(waits.question.fields.get("from", ())) == [member]]
        for waits in gone:
            self._quota.give(waits.node, waits.size)
        self._waiting = [waits for waits in self._waiting if waits not in gone]


def _weight(name: str, entry: _Name) -> int:
    return len(name) + len(entry.blob) + _ENTRY
