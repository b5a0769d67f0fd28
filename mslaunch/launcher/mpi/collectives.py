"""Collectives across nodes, and questions that one node asks another.

Blobs are joined unseen: what PMI puts and what PMIx encodes.  A collective takes one round trip: each node's part up,
all parts down.  Parts are matched by counting, the nth of a node with the nth of the others, so that no number has to
travel and two fences of the same members cannot be confused.  What an agent sends that makes no sense is a `WireError`,
and so is what it says in the name of a rank of another node; a question of a rank that has no answer gets an error as
its answer.  All that is kept for a node has a bound (`NodeQuota`).
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.mpi.name_service import NameService
from mslaunch.launcher.mpi.node_quota import NodeQuota
from mslaunch.protocol import frames
from mslaunch.protocol.mpi import (
    Answer,
    Gathering,
    Question,
    Released,
    pack_with_blobs,
    pieces_with_blobs,
    unpack_with_blobs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Send = Callable[..., None]  # node, and a frame in pieces
    WhenRoom = Callable[[int, Callable[[], None]], None]
    Spawn = Callable[[int, Question, Callable[[Answer], None]], None]


#: bytes of all open collectives of a job, as of the one frame in which each must fit; members and sizes need room, too
_LARGEST = frames.MAX_PAYLOAD - (1 << 20)
#: open collectives of a node, and their bytes: one part of the largest size, and half of that for others
_OPEN, _OPEN_SIZE = 1024, frames.PART_OF_COLLECTIVE * 3 // 2
_ENTRY, _MEMBER = 500, 150  # bytes that a part, and the name of a member, take besides
_DIGITS = 10  # of the rank of a member
#: questions of a node that wait for another one.  Each of its ranks, or of their threads, waits for one at a time
_ROUTED, _ROUTED_SIZE = 1 << 14, 1 << 22


class _Routed(NamedTuple):
    """A question that was sent on."""

    node: int  # who asked
    number: int  # of the question, there
    owner: int  # the node that must answer
    size: int  # bytes that count for the quota of the node


class _RankWorld(NamedTuple):
    """The ranks of a world."""

    nodes: Sequence[int]  # of each
    all_nodes: frozenset[int]  # each once
    ended: set[int]  # ranks
    ended_on: dict[int, int]  # node -> the first of its ranks that has ended


class _OpenQueue(NamedTuple):
    """The open collectives of the same members and kind."""

    nodes: set[int]  # of the members
    members: frozenset[str]
    parts: list[dict[int, bytes]]  # node -> its part, for each in turn; a node that is in one is in those before it

    def lacks(self, world: str, rank: int, node: int) -> bool:
        """Whether it waits for a part of `node`, which has this member; the time does not grow with the members."""
        waits = node in self.nodes and node not in self.parts[-1]
        return waits and (world in self.members or f"{world}.{rank}" in self.members)


class Collectives:
    """Between the agents of one launch."""

    def __init__(
        self,
        send: Send,
        full: Callable[[int], bool],
        when_room: WhenRoom,
        spawn: Spawn,
        stranded: Callable[[str, int], None],
        too_large: Callable[[int], None],
    ) -> None:
        """`spawn(node, question, done)` starts a world.  `send`, `full` and `when_room`: those of `JobAgents`.

        `stranded(world, rank)`: others wait in a collective for a rank that has ended.  `too_large(bytes)`: ranks
        exchange more than this.
        """
        self._send = send
        self._spawn = spawn
        self._stranded = stranded
        self._too_large = too_large
        self._worlds: dict[str, _RankWorld] = {}
        self._lost: set[int] = set()  # nodes
        self._open: dict[tuple[str, tuple[str, ...]], _OpenQueue] = {}
        self._open_quota = NodeQuota(_OPEN, _OPEN_SIZE)
        self._held = 0  # bytes of all open collectives
        self._names = NameService(self._answer, full, when_room)
        self._routed: dict[int, _Routed] = {}  # by our numbers
        self._route_quota = NodeQuota(_ROUTED, _ROUTED_SIZE)
        self._number = 0

    def add_world(self, name: str, nodes: Sequence[int]) -> None:
        """A world, and the node of each of its ranks."""
        self._worlds[name] = _RankWorld(nodes, frozenset(nodes), set(), {})

    # --- collectives

    def gathered(self, node: int, payload: bytes) -> None:
        """GATHER of a node."""
        part = unpack_with_blobs(Gathering, payload)
        key = part.op, part.members
        queue = self._open.get(key) or self._queue(part)
        if node not in queue.nodes:
            raise WireError(f"it takes part in a collective ({part.op}) of which it has no member")
        blob = b"".join(part.blobs)
        if not self._open_quota.take(node, _weight(part.members, blob)):
            what = f"its collectives that are not complete are more than {_OPEN}, or {_OPEN_SIZE >> 20} MiB"
            raise WireError(what, todo="it may be another program than an agent of ours")
        self._held += len(blob)
        self._open[key] = queue
        parts = next((parts for parts in queue.parts if node not in parts), None)
        if parts is None:
            parts = {}
            queue.parts.append(parts)
        parts[node] = blob
        if self._held > _LARGEST:
            self._close(part, parts)
            self._too_large(_LARGEST)
        elif len(parts) == len(queue.nodes):
            self._close(part, parts)
            self._release(part, parts)
        else:
            self._look_for_stranded(part.members, parts)

    def _queue(self, part: Gathering) -> _OpenQueue:
        """An empty one for these members."""
        members = frozenset(part.members)
        if len(members) < len(part.members):
            raise WireError(f"it takes part in a collective ({part.op}) with a member twice")
        return _OpenQueue(self._nodes(part.members), members, [])

    def _close(self, part: Gathering, parts: dict[int, bytes]) -> None:
        """A collective is not open any more."""
        queue = self._open[part.op, part.members].parts
        queue.remove(parts)
        if not queue:
            del self._open[part.op, part.members]
        for node, blob in parts.items():
            self._held -= len(blob)
            self._open_quota.give(node, _weight(part.members, blob))

    def _release(self, part: Gathering, parts: Mapping[int, bytes]) -> None:
        nodes = sorted(parts)
        pieces = pieces_with_blobs(Released(part.op, part.members, tuple(parts[node] for node in nodes)))
        head = frames.header(frames.RELEASE, sum(map(len, pieces)))
        frame = b"".join((head, *pieces))  # one for all of them
        for node in nodes:
            self._send(node, frame)

    def _nodes(self, members: Iterable[str]) -> set[int]:
        """Those that have any of `members`; raises WireError for what is no member."""
        nodes: set[int] = set()
        for member in members:
            name, dot, rank = member.partition(".")
            world = self._worlds.get(name)
            digits = rank.isascii() and rank.isdigit() and len(rank) <= _DIGITS  # int() of many takes minutes
            one_way = digits and (rank[0] != "0" or rank == "0")  # or a member may have many names
            if world is None or (dot and not (one_way and int(rank) < len(world.nodes))):
                raise WireError(f"it named {member[:60]!r}, which is no rank of this job")
            nodes.update((world.nodes[int(rank)],) if dot else world.all_nodes)
        return nodes

    def ended(self, world: str, rank: int) -> None:
        """The process of a rank is over."""
        known = self._worlds[world]
        node = known.nodes[rank]
        known.ended.add(rank)
        known.ended_on.setdefault(node, rank)
        self._names.ended(f"{world}.{rank}")
        if any(queue.lacks(world, rank, node) for queue in self._open.values()):
            self._stranded(world, rank)

    def _look_for_stranded(self, members: Iterable[str], parts: Mapping[int, bytes]) -> None:
        """Tell if the others wait in a collective for a rank that has ended."""
        gone = next(((world, rank) for world, rank, node in self._gone(members) if node not in parts), None)
        if gone:
            self._stranded(*gone)

    def _gone(self, members: Iterable[str]) -> Iterator[tuple[str, int, int]]:
        """Those of `members` that have ended, and their nodes; of a whole world, one for each node."""
        for member in members:
            name, dot, rank = member.partition(".")
            world = self._worlds[name]
            if not dot:
                yield from ((name, one, node) for node, one in world.ended_on.items())
            elif int(rank) in world.ended:
                yield name, int(rank), world.nodes[int(rank)]

    # --- questions

    def asked(self, node: int, payload: bytes) -> None:
        """ASK of a node."""
        question = unpack_with_blobs(Question, payload)
        if question.what != "modex":
            self._check_member(node, question)
        if question.what == "spawn":
            number = question.number
            self._spawn(node, question, lambda answer: self._answer(node, answer._replace(number=number)))
            return
        names = self._names
        ways = {"modex": self._route, "publish": names.publish, "lookup": names.lookup, "unpublish": names.unpublish}
        try:
            ways[question.what](node, question)
        except (KeyError, ValueError):
            raise WireError(f"it asked for {question.what!r} in words that mean nothing here") from None

    def _check_member(self, node: int, question: Question) -> None:
        """A node may ask in the name of its own ranks only."""
        words = list(question.fields.get("from", ()))
        if len(words) != 1 or "." not in words[0] or self._nodes(words) != {node}:
            raise WireError(f"it asked for {question.what!r} in the name of a rank that it does not run")

    def replied(self, node: int, payload: bytes) -> None:
        """REPLY of the node to which a question was sent on."""
        answer = unpack_with_blobs(Answer, payload)
        routed = self._routed.get(answer.number)
        if routed is None or routed.owner != node:
            raise WireError("it answered what nobody asked")
        self._forget(answer.number)
        self._answer(routed.node, answer._replace(number=routed.number))

    def _answer(self, node: int, answer: Answer) -> None:
        pieces = pieces_with_blobs(answer)
        size = sum(map(len, pieces))
        if size > frames.DOWN[frames.ANSWER]:
            pieces = pieces_with_blobs(Answer(answer.number, "large:more than a frame may hold"))
            size = sum(map(len, pieces))
        self._send(node, frames.header(frames.ANSWER, size), *pieces)

    def _route(self, node: int, question: Question) -> None:
        """Send it on to the node of the rank that it is about."""
        (member,), (family,) = question.fields["of"], question.fields["family"]
        try:
            (owner,) = self._nodes((member,))
        except WireError:  # a rank may ask about any
            self._answer(node, Answer(question.number, f"missing:{member}"))
            return
        if owner in self._lost:
            self._answer(node, Answer(question.number, f"missing:{member}, whose host was lost"))
            return
        if not self._route_quota.take(node, len(member)):
            self._answer(node, Answer(question.number, "full:too many questions wait"))
            return
        self._number += 1
        self._routed[self._number] = _Routed(node, question.number, owner, len(member))
        fields = {"family": (family,), "of": (member,)}  # and nothing that nobody reads there
        sent = pack_with_blobs(Question(self._number, question.what, fields))
        self._send(owner, frames.encode(frames.QUESTION, payload=sent))

    def _forget(self, number: int) -> None:
        routed = self._routed.pop(number)
        self._route_quota.give(routed.node, routed.size)

    def lost(self, node: int) -> None:
        """Its link has ended: it answers no more."""
        self._lost.add(node)
        for number, routed in list(self._routed.items()):
            if node in (routed.owner, routed.node):
                self._forget(number)
            if routed.owner == node != routed.node:
                self._answer(routed.node, Answer(routed.number, "missing:the host was lost"))


def _weight(members: Sequence[str], blob: bytes) -> int:
    """Bytes that a node's part of a collective takes."""
    return len(blob) + _MEMBER * len(members) + sum(map(len, members)) + _ENTRY
