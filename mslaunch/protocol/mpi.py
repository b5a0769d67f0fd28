"""The frames of MPI programs as records and bytes: collectives, questions, aborts, and parts on demand.

What PMI and PMIx exchange passes as blobs; `node_plan.World` says what a member is.  A payload is fields and then
blobs, for blobs may hold NULs.  A long one is compressed, for TCP sends little at once on a link that was silent.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.codec import pack, strict, unpack
from mslaunch.protocol.control import pack_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


#: bytes of a payload that is compressed: less fits into few packets, and of more it is the width of the link that
#: counts, with which zlib may not keep up
LEAST, MOST = 4096, 1 << 20


class Gathering(NamedTuple):
    """One node's part of a collective: all of its own among `members` are in (GATHER).

    The nth part of a node for one `op` and `members` belongs to the nth of the others.
    """

    op: str  # fence, connect, disconnect, group …: what must agree on all nodes
    members: tuple[str, ...]
    blob: bytes = b""


class Released(NamedTuple):
    """A collective is complete (RELEASE)."""

    op: str
    members: tuple[str, ...]
    blobs: tuple[bytes, ...] = ()  # of the nodes that took part, in the order of nodes


class Question(NamedTuple):
    """Something that only another node or the launcher knows or does (ASK up, QUESTION down)."""

    number: int  # of him who asks; the answer has the same
    what: str  # publish, lookup, unpublish, modex, spawn
    fields: Mapping[str, Iterable[str]] = {}
    blobs: tuple[bytes, ...] = ()


class Answer(NamedTuple):
    """What was asked (ANSWER down, REPLY up)."""

    number: int
    error: str = ""  # a word for the asking agent, and after a colon one for people; "": it went well
    fields: Mapping[str, Iterable[str]] = {}
    blobs: tuple[bytes, ...] = ()


class Abort(NamedTuple):
    """A rank ends the job (ABORT)."""

    code: int
    text: str = ""
    broken: bool = False  # not MPI_Abort: what it said to us is not the protocol


class Alone(NamedTuple):
    """A rank has loaded an MPI library that nobody here serves, so it believes to be the only one (ALONE)."""

    library: str  # path
    family: str  # Open MPI, MPICH, Intel MPI
    certain: bool  # it has been initialised, too
    offered: str  # what we offered: pmi, pmix, none


def pack_gathering(part: Gathering) -> bytes:
    """The payload of `Gathering`."""
    return _pack({"op": [part.op], "members": part.members}, (part.blob,))


@strict
def unpack_gathering(payload: bytes) -> Gathering:
    """The inverse of `pack_gathering`."""
    fields, (blob,) = _unpack(payload)
    (op,) = fields["op"]
    return Gathering(op, tuple(fields["members"]), blob)


def pack_released(whole: Released) -> bytes:
    """The payload of `Released`."""
    return _pack({"op": [whole.op], "members": whole.members}, whole.blobs)


@strict
def unpack_released(payload: bytes) -> Released:
    """The inverse of `pack_released`."""
    fields, blobs = _unpack(payload)
    (op,) = fields["op"]
    return Released(op, tuple(fields["members"]), blobs)


def pack_question(question: Question) -> bytes:
    """The payload of `Question`."""
    return _pack({"": [str(question.number), question.what], **question.fields}, question.blobs)


@strict
def unpack_question(payload: bytes) -> Question:
    """The inverse of `pack_question`."""
    fields, blobs = _unpack(payload)
    number, what = fields.pop("")
    return Question(int(number), what, fields, blobs)


def pack_answer(answer: Answer) -> bytes:
    """The payload of `Answer`."""
    return _pack({"": [str(answer.number), answer.error], **answer.fields}, answer.blobs)


@strict
def unpack_answer(payload: bytes) -> Answer:
    """The inverse of `pack_answer`."""
    fields, blobs = _unpack(payload)
    number, error = fields.pop("")
    return Answer(int(number), error, fields, blobs)


def pack_abort(abort: Abort) -> bytes:
    """The payload of `Abort`, whose text may hold anything, a NUL too."""
    return pack_record(abort._replace(text=abort.text.replace("\0", " ")))


def pack_part(sources: Mapping[str, str]) -> bytes:
    """The payload of PART: modules that only some jobs need, and their sources."""
    return pack({name: [source] for name, source in sources.items()})


@strict
def unpack_part(payload: bytes) -> dict[str, str]:
    """The inverse of `pack_part`."""
    return {name: source for name, (source,) in unpack(payload).items()}


def _pack(fields: Mapping[str, Iterable[str]], blobs: tuple[bytes, ...]) -> bytes:
    """The sizes of fields and blobs, a line; then these."""
    head = pack(fields)
    sizes = " ".join(str(len(part)) for part in (head, *blobs))
    payload = b"".join((sizes.encode(), b"\n", head, *blobs))
    if LEAST <= len(payload) <= MOST:
        import zlib

        # 64 KiB of hexadecimal addresses take 1 ms and become 37
        payload = b"z" + zlib.compress(payload, 1)
    return payload


def _expanded(payload: bytes) -> bytes:
    """What was compressed above; of anything else nothing, which is no message either."""
    import zlib

    expander = zlib.decompressobj()
    try:
        found = expander.decompress(payload, MOST + 1)
    except zlib.error:
        return b""
    return found if expander.eof and not expander.unused_data and len(found) <= MOST else b""


def _unpack(payload: bytes) -> tuple[dict[str, list[str]], tuple[bytes, ...]]:
    if payload[:1] == b"z":  # others begin with a digit
        payload = _expanded(payload[1:])
    line, newline, rest = payload.partition(b"\n")
    sizes = [int(word) for word in line.split()]
    if not newline or min(sizes) < 0 or sum(sizes) != len(rest):
        raise ValueError("the sizes are wrong")
    parts = []
    at = 0
    for size in sizes:
        parts.append(rest[at : at + size])
        at += size
    return unpack(parts[0]), tuple(parts[1:])
