"""The frames of MPI programs as records and bytes: collectives, questions, aborts, and parts on demand.

What PMI and PMIx exchange passes as blobs; `node_plan.World` says what a member is.  A payload is fields and then
blobs, for blobs may hold NULs.  A long one is compressed, for TCP sends little at once on a link that was silent.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.codec import checked, integer, pack, strict, unpack
from mslaunch.protocol.control import fields_of, pack_record, record_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    T = TypeVar("T")

#: bytes of a payload that is compressed: less fits into few packets, and of more it is the width of the link that
#: counts, with which zlib may not keep up
LEAST, MOST = 4096, 1 << 20
_TEXT = 1 << 13  # characters of an abort's text
_SIZES = 1 << 17  # blobs of a frame, of which each node sends some, or a rank one for each name
_OWN = "."  # before the names of a record's own fields, among those that a question or answer brings


class Gathering(NamedTuple):
    """One node's part of a collective: all of its own among `members` are in (GATHER).

    The nth part of a node for one `op` and `members` belongs to the nth of the others.
    """

    op: str  # fence, connect, disconnect, group …: what must agree on all nodes
    members: tuple[str, ...]
    blobs: tuple[bytes, ...] = ()  # joined, they are what the node contributes


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
    user: str = ""  # uid of another user, who tried to join as a rank and knew how


class Alone(NamedTuple):
    """A rank has loaded an MPI library that nobody here serves, so it believes to be the only one (ALONE)."""

    library: str  # path
    family: str  # Open MPI, MPICH, Intel MPI; or Horovod without MPI
    certain: bool  # it has been initialised, too
    offered: str  # what we offered: pmi, pmix, none


def pack_with_blobs(record: Gathering | Released | Question | Answer) -> bytes:
    """The payload of a `Gathering`, `Released`, `Question` or `Answer`."""
    return b"".join(pieces_with_blobs(record))


def pieces_with_blobs(record: Gathering | Released | Question | Answer) -> list[bytes]:
    """The same in pieces: no copy is made of blobs that are long."""
    more: Mapping[str, Iterable[str]] = getattr(record, "fields", {})
    return _pack({**fields_of(record, _OWN, ("fields", "blobs")), **more}, record.blobs)


def unpack_with_blobs(kind: type[T], payload: bytes) -> T:
    """The inverse of `pack_with_blobs`."""
    return checked(kind.__name__, lambda: _record_with_blobs(kind, payload))


def _record_with_blobs(kind: type[T], payload: bytes) -> T:
    fields, blobs = _unpack(payload)
    more = {name: words for name, words in fields.items() if not name.startswith(_OWN)}
    known = {"fields": more} if "fields" in kind.__annotations__ else {}
    return record_of(kind, fields, _OWN, blobs=blobs, **known)


def pack_abort(abort: Abort) -> bytes:
    """The payload of `Abort`, whose text may hold anything, a NUL too; a long one is cut."""
    return pack_record(abort._replace(text=abort.text.replace("\0", " ")[:_TEXT]))


@strict
def unpack_part(payload: bytes) -> dict[str, str]:
    """The payload of PART: modules that only some jobs need, and their sources."""
    return {name: source for name, (source,) in unpack(payload).items()}


def _pack(fields: Mapping[str, Iterable[str]], blobs: tuple[bytes, ...]) -> list[bytes]:
    """The sizes of fields and blobs, a line; then these."""
    head = pack(fields)
    sizes = " ".join(str(len(part)) for part in (head, *blobs))
    pieces = [sizes.encode() + b"\n" + head, *blobs]
    if LEAST <= sum(map(len, pieces)) <= MOST:
        import zlib

        # 64 KiB of hexadecimal addresses take 1 ms and become 37
        pieces = [b"z" + zlib.compress(b"".join(pieces), 1)]
    return pieces


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
    at = payload.index(b"\n", 0, _SIZES * 9) + 1
    sizes = [integer(word) for word in payload[: at - 1].decode("ascii").split(None, _SIZES)]
    if min(sizes) < 0 or sum(sizes) != len(payload) - at:
        raise ValueError("the sizes are wrong")
    parts = []
    for size in sizes:
        parts.append(payload[at : at + size])
        at += size
    return unpack(parts[0]), tuple(parts[1:])
