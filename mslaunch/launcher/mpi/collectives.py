"""Collectives across nodes, and questions that one node asks another.

Blobs are joined unseen: what PMI puts and what PMIx encodes.  A collective takes one round trip: each node's part up,
all parts down.  Parts are matched by counting, the nth of a node with the nth of the others, so that no number has to
travel and two fences of the same members cannot be confused.  What an agent sends that makes no sense is a `WireError`;
a question of a rank that has no answer gets an error as its answer.
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.mpi.name_service import NameService
from mslaunch.protocol import frames
from mslaunch.protocol.mpi import Answer, Gathering, Question, Released, pack_with_blobs, unpack_with_blobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Send = Callable[[int, bytes], None]
    Spawn = Callable[[Question, Callable[[Answer], None]], None]


_LARGEST = frames.MAX_PAYLOAD - (1 << 20)  # bytes of a collective's blobs: members and sizes need room, too


class _Routed(NamedTuple):
    """A question that was sent on."""

    node: int  # who asked
    number: int  # of the question, there
    owner: int  # the node that must answer


class Collectives:
    """Between the agents of one launch."""

    def __init__(
        self,
        send: Send,
        spawn: Spawn,
        stranded: Callable[[str, int], None],
        too_large: Callable[[int], None],
    ) -> None:
        """`send(node, frame)`; `spawn(question, done)` starts a world.

        `stranded(world, rank)`: others wait in a collective for a rank that has ended.  `too_large(bytes)`: ranks
        exchange more than this.
        """
        self._send = send
        self._spawn = spawn
        self._stranded = stranded
        self._too_large = too_large
        self._worlds: dict[str, Sequence[int]] = {}
        self._ended: dict[str, set[int]] = {}
        self._lost: set[int] = set()  # nodes
        self._open: dict[tuple[str, tuple[str, ...]], list[dict[int, bytes]]] = {}
        self._names = NameService(self._answer)
        self._routed: dict[int, _Routed] = {}  # by our numbers
        self._number = 0

    def add_world(self, name: str, nodes: Sequence[int]) -> None:
        """A world, and the node of each of its ranks."""
        self._worlds[name] = nodes
        self._ended[name] = set()

    # --- collectives

    def gathered(self, node: int, payload: bytes) -> None:
        """GATHER of a node."""
        part = unpack_with_blobs(Gathering, payload)
        wanted = self._nodes(part.members)
        if node not in wanted:
            raise WireError(f"it takes part in a collective ({part.op}) of which it has no member")
        queue = self._open.setdefault((part.op, part.members), [])
        parts = next((parts for parts in queue if node not in parts), None)
        if parts is None:
            parts = {}
            queue.append(parts)
        parts[node] = b"".join(part.blobs)
        size = sum(map(len, parts.values()))
        if len(parts) == len(wanted) or size > _LARGEST:
            queue.remove(parts)
            if not queue:
                del self._open[part.op, part.members]
        if size > _LARGEST:
            self._too_large(_LARGEST)
        elif len(parts) == len(wanted):
            self._release(part, parts)
        else:
            self._look_for_stranded()

    def _release(self, part: Gathering, parts: Mapping[int, bytes]) -> None:
        nodes = sorted(parts)
        whole = pack_with_blobs(Released(part.op, part.members, tuple(parts[node] for node in nodes)))
        for node in nodes:
            self._send(node, frames.encode(frames.RELEASE, payload=whole))

    def _nodes(self, members: Iterable[str]) -> set[int]:
        """Those that have any of `members`; raises WireError for what is no member."""
        nodes: set[int] = set()
        for member in members:
            name, dot, rank = member.partition(".")
            world = self._worlds.get(name)
            if world is None or (dot and not (rank.isascii() and rank.isdigit() and int(rank) < len(world))):
                raise WireError(f"it named {member!r}, which is no rank of this job")
            nodes.update((world[int(rank)],) if dot else world)
        return nodes

    def ended(self, world: str, rank: int) -> None:
        """The process of a rank is over."""
        self._ended[world].add(rank)
        self._names.ended(f"{world}.{rank}")
        self._look_for_stranded()

    def _look_for_stranded(self) -> None:
        for (_, members), queue in self._open.items():
            gone = list(self._gone(members))
            for parts in queue:
                for world, rank in gone:
                    if self._worlds[world][rank] not in parts:
                        self._stranded(world, rank)
                        return

    def _gone(self, members: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Those of `members` that have ended."""
        for member in members:
            world, dot, rank = member.partition(".")
            if not dot:
                yield from ((world, one) for one in sorted(self._ended[world]))
            elif int(rank) in self._ended[world]:
                yield world, int(rank)

    # --- questions

    def asked(self, node: int, payload: bytes) -> None:
        """ASK of a node."""
        question = unpack_with_blobs(Question, payload)
        if question.what == "spawn":
            number = question.number
            self._spawn(question, lambda answer: self._answer(node, answer._replace(number=number)))
            return
        names = self._names
        ways = {"modex": self._route, "publish": names.publish, "lookup": names.lookup, "unpublish": names.unpublish}
        try:
            ways[question.what](node, question)
        except (KeyError, ValueError):
            raise WireError(f"it asked for {question.what!r} in words that mean nothing here") from None

    def replied(self, node: int, payload: bytes) -> None:
        """REPLY of the node to which a question was sent on."""
        answer = unpack_with_blobs(Answer, payload)
        routed = self._routed.get(answer.number)
        if routed is None or routed.owner != node:
            raise WireError("it answered what nobody asked")
        del self._routed[answer.number]
        self._answer(routed.node, answer._replace(number=routed.number))

    def _answer(self, node: int, answer: Answer) -> None:
        payload = pack_with_blobs(answer)
        if len(payload) > frames.MAX_PAYLOAD:
            payload = pack_with_blobs(Answer(answer.number, "large:more than a frame may hold"))
        self._send(node, frames.encode(frames.ANSWER, payload=payload))

    def _route(self, node: int, question: Question) -> None:
        """Send it on to the node of the rank that it is about."""
        (member,) = question.fields["of"]
        try:
            (owner,) = self._nodes((member,))
        except WireError:  # a rank may ask about any
            self._answer(node, Answer(question.number, f"missing:{member}"))
            return
        if owner in self._lost:
            self._answer(node, Answer(question.number, f"missing:{member}, whose host was lost"))
            return
        self._number += 1
        self._routed[self._number] = _Routed(node, question.number, owner)
        sent = pack_with_blobs(question._replace(number=self._number))
        self._send(owner, frames.encode(frames.QUESTION, payload=sent))

    def lost(self, node: int) -> None:
        """Its link has ended: it answers no more."""
        self._lost.add(node)
        for number, routed in list(self._routed.items()):
            if routed.owner == node:
                del self._routed[number]
                self._answer(routed.node, Answer(routed.number, "missing:the host was lost"))
            elif routed.node == node:
                del self._routed[number]
