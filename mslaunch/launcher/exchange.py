"""The exchange: where the nodes' parts of collectives meet, names are published, and questions find who can answer.

It knows members and their nodes, and passes blobs unseen: what PMI puts and what PMIx encodes is theirs.  Frames go out
through `send`; no clock, no descriptor.  A collective takes one round trip: each node's part up, all parts down.  The
surprising thing: parts are matched by counting, the nth of a node with the nth of the others, so that no number has to
travel and two fences of the same members cannot be confused.
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.lean import TYPE_CHECKING
from mslaunch.wire import frames
from mslaunch.wire.exchanges import (
    Answer,
    Gathering,
    Question,
    Released,
    pack_answer,
    pack_question,
    pack_released,
    unpack_answer,
    unpack_gathering,
    unpack_question,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Send = Callable[[int, bytes], None]
    Spawn = Callable[[int, Question, Callable[[Answer], None]], None]


class _Waiting:
    """A lookup that waits for names."""

    def __init__(self, node: int, question: Question) -> None:
        self.node = node
        self.question = question


class Exchange:
    """Between the agents of one launch."""

    def __init__(self, send: Send, spawn: Spawn, stranded: Callable[[str, int], None]) -> None:
        """`send(node, frame)`; `spawn(node, question, done)` starts a world.

        `stranded(world, rank)`: others wait in a collective for a rank that has ended.
        """
        self._send = send
        self._spawn = spawn
        self._stranded = stranded
        self._worlds: dict[str, Sequence[int]] = {}
        self._ended: set[tuple[str, int]] = set()
        self._open: dict[tuple[str, tuple[str, ...]], list[dict[int, bytes]]] = {}
        self._names: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._waiting: list[_Waiting] = []
        self._routed: dict[int, tuple[int, int]] = {}  # our number -> who asked, and the number there
        self._number = 0

    def add_world(self, name: str, nodes: Sequence[int]) -> None:
        """A world, and the node of each of its ranks."""
        self._worlds[name] = nodes

    # --- collectives

    def gathered(self, node: int, payload: bytes) -> None:
        """GATHER of a node."""
        part = unpack_gathering(payload)
        wanted = self._nodes(part.members)
        if node not in wanted:
            raise WireError(f"it takes part in a collective ({part.op}) of which it has no member")
        queue = self._open.setdefault((part.op, part.members), [])
        parts = next((parts for parts in queue if node not in parts), None)
        if parts is None:
            parts = {}
            queue.append(parts)
        parts[node] = part.blob
        if len(parts) == len(wanted):
            queue.remove(parts)
            if not queue:
                del self._open[part.op, part.members]
            self._release(part, parts)
        else:
            self._look_for_stranded()

    def _release(self, part: Gathering, parts: Mapping[int, bytes]) -> None:
        nodes = sorted(parts)
        whole = pack_released(Released(part.op, part.members, tuple(parts[node] for node in nodes)))
        for node in nodes:
            self._send(node, frames.encode(frames.RELEASE, payload=whole))

    def _nodes(self, members: Iterable[str]) -> set[int]:
        """Those that have any of `members`; raises WireError for what is no member."""
        nodes: set[int] = set()
        for member in members:
            name, dot, rank = member.partition(".")
            world = self._worlds.get(name)
            if world is None or (dot and not (rank.isdigit() and int(rank) < len(world))):
                raise WireError(f"it named {member!r}, which is no rank of this job")
            nodes.update((world[int(rank)],) if dot else world)
        return nodes

    def ended(self, world: str, rank: int) -> None:
        """The process of a rank is over."""
        self._ended.add((world, rank))
        self._look_for_stranded()

    def _look_for_stranded(self) -> None:
        if not self._ended:
            return
        for (_, members), queue in self._open.items():
            for parts in queue:
                for world, rank in self._ended:
                    if self._is_member(world, rank, members) and self._worlds[world][rank] not in parts:
                        self._stranded(world, rank)
                        return

    def _is_member(self, world: str, rank: int, members: Sequence[str]) -> bool:
        return world in members or f"{world}.{rank}" in members

    # --- questions

    def asked(self, node: int, payload: bytes) -> None:
        """ASK of a node."""
        question = unpack_question(payload)
        if question.what == "spawn":
            number = question.number
            self._spawn(node, question, lambda answer: self._answer(node, answer._replace(number=number)))
        elif question.what == "modex":
            self._route(node, question)
        elif question.what in ("publish", "lookup", "unpublish"):
            getattr(self, "_" + question.what)(node, question)
        else:
            raise WireError(f"it asked for {question.what!r}, which nobody knows here")

    def replied(self, payload: bytes) -> None:
        """REPLY of the node to which a question was sent on."""
        answer = unpack_answer(payload)
        back = self._routed.pop(answer.number, None)
        if back is None:
            raise WireError("it answered what nobody asked")
        self._answer(back[0], answer._replace(number=back[1]))

    def _answer(self, node: int, answer: Answer) -> None:
        self._send(node, frames.encode(frames.ANSWER, payload=pack_answer(answer)))

    def _route(self, node: int, question: Question) -> None:
        """Send it on to the node of the rank that it is about."""
        (member,) = question.fields["of"]
        (owner,) = self._nodes((member,))
        self._number += 1
        self._routed[self._number] = node, question.number
        sent = pack_question(question._replace(number=self._number))
        self._send(owner, frames.encode(frames.QUESTION, payload=sent))

    # --- names

    def _publish(self, node: int, question: Question) -> None:
        (family,), (owner,) = question.fields["family"], question.fields["from"]
        names = [(family, name) for name in question.fields["names"]]
        taken = next((name for name in names if name in self._names), None)
        if taken:
            self._answer(node, Answer(question.number, f"exists:{taken[1]}"))
            return
        self._names.update((name, (owner, blob)) for name, blob in zip(names, question.blobs))
        self._answer(node, Answer(question.number))
        waiting, self._waiting = self._waiting, []
        for lookup in waiting:
            self._lookup(lookup.node, lookup.question)

    def _lookup(self, node: int, question: Question) -> None:
        (family,) = question.fields["family"]
        wanted = list(question.fields["names"])
        found = {name: self._names[family, name] for name in wanted if (family, name) in self._names}
        if len(found) < len(wanted) and list(question.fields.get("wait", ())):
            self._waiting.append(_Waiting(node, question))
            return
        owners = [owner for owner, _ in found.values()]
        blobs = tuple(blob for _, blob in found.values())
        error = "" if found else f"missing:{' '.join(wanted)}"
        self._answer(node, Answer(question.number, error, {"names": list(found), "from": owners}, blobs))

    def _unpublish(self, node: int, question: Question) -> None:
        (family,) = question.fields["family"]
        gone = [self._names.pop((family, name), None) for name in question.fields["names"]]
        error = "" if any(gone) else f"missing:{' '.join(question.fields['names'])}"
        self._answer(node, Answer(question.number, error))
