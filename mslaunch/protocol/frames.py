"""Frames, the units on a link: a header of nine bytes (kind, length, rank), then the payload.

Bytes that a login shell prints before the agent's magic are no frames: a `Decoder` made with `magic=True` skips them
and keeps them as `noise` for the error message.  There is no version byte, since the agent is the launcher's own
source.  Each kind has a bound, which the header is held against before the payload is kept.  docs/wire.md describes
the conversation.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_RANK as NO_RANK  # noqa: PLC0414 (users say frames.NO_RANK)
from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.protocol.sealed_records import RecordOpener

MAGIC = b"\0mslaunch agent\n"
MAX_PAYLOAD = 1 << 27  #: bytes of the longest frame of any kind

# down: launcher to agent
LAUNCH, STDIN, SIGNAL, END, RESERVE, PROBE, RESTART, TRACE, FILE, DATA, DESCRIBE = range(1, 12)
RELEASE, ANSWER, QUESTION, PART, PAUSE, RESUME, CLEANUP, ROOM, LEASE, KEYS, AWAIT, HELD, CHECK, USE = range(12, 26)
# up: agent to launcher
HELLO, RESERVED, REACHED, STARTED, STDOUT, STDERR, EXIT, STDIN_TAKEN, FAULT, TRACES, STORED, TOPOLOGY = range(65, 77)
(
    NEED, JOINED, LEFT, ABORT, ALONE, GATHER, ASK, REPLY, SERVES, NOTICE, ENDING, CLEANED, FITS, ALIVE, WRITE, HOLDERS,
    CHECKED, USED,
) = range(77, 95)  # fmt: skip
#: those of an agent whose ranks are MPI programs
OF_MPI = (NEED, JOINED, LEFT, ABORT, ALONE, GATHER, ASK, REPLY)

#: what ALIVE may say: processes are being started, which may take longer than a lease; the lease is suspended, as LEASE
#: has asked; the launcher was not heard for a lease, and the agent ends its part.  Without a word it is a sign of life
BUSY, SUSPENDED, GIVEN_UP = b"busy", b"suspended", b"lost"
#: bytes of a part of a collective, or of what a rank has put: what a node of 256 ranks with 64 KiB each needs.  An
#: agent can make the launcher hold this twice (as it comes, and whole), beside what it keeps (`mpi.collectives`)
PART_OF_COLLECTIVE = 1 << 24


def _bounds(kinds: Sequence[int], large: Mapping[int, int]) -> list[int]:
    """The most bytes of each kind: those of `large`, 64 KiB for others; -1: it does not go this way."""
    return [large.get(kind, 1 << 16) if kind in kinds else -1 for kind in range(256)]


#: kind -> the most bytes that its payload may have
DOWN = _bounds(
    range(LAUNCH, HELLO),
    {
        LAUNCH: MAX_PAYLOAD,
        RELEASE: MAX_PAYLOAD,
        ANSWER: 1 << 25,
        QUESTION: 1 << 25,
        PART: 1 << 25,
        CHECK: 1 << 25,  # the environment of ranks is in it
        STDIN: 1 << 20,
        DATA: 1 << 20,
    },
)
UP = _bounds(
    range(HELLO, 128),
    {
        STDOUT: 1 << 21,  # a pipe of 1 MiB, and the beginning of a line
        STDERR: 1 << 21,
        TRACES: 1 << 18,
        USED: 1 << 20,
        TOPOLOGY: 1 << 20,
        GATHER: PART_OF_COLLECTIVE,
        REPLY: PART_OF_COLLECTIVE,
        ASK: 1 << 23,  # MPI_Comm_spawn_multiple with its arguments, and published values
    },
)
ANY = list(map(max, DOWN, UP))

_HEADER = struct.Struct("!BIi")
_NOISE_KEPT = 4096


class Frame(NamedTuple):
    """One frame; `payload` is raw bytes, or fields (`protocol.codec`) for control."""

    kind: int
    rank: int
    payload: bytes


def header(kind: int, size: int, rank: int = NO_RANK) -> bytes:
    """The nine bytes before a payload of `size` bytes."""
    return _HEADER.pack(kind, size, rank)


def encode(kind: int, rank: int = NO_RANK, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return _HEADER.pack(kind, len(payload), rank) + payload


class Decoder:
    """Cuts a stream of bytes into frames, however the stream was cut before.

    `bounds` are those of the kinds that may come (`UP`, `DOWN`).  `opener`: the stream comes in its records.
    """

    def __init__(self, bounds: Sequence[int] = ANY, magic: bool = False, opener: RecordOpener | None = None) -> None:
        self._bounds = bounds
        self._opener = opener
        self._buffer = b""  # the beginning of a header, or what may be one of the magic
        self._kind = self._rank = 0  # of the frame that is coming
        self._pieces: list[bytes] = []  # of its payload, as far as they have come
        self._missing = 0  # bytes that it lacks
        self._waiting_for_magic = magic
        self._noise = b""

    @property
    def noise(self) -> bytes:
        """What came before the magic, the last 4 KiB of it."""
        return self._noise + self._buffer if self._waiting_for_magic else self._noise

    @property
    def between(self) -> bool:
        """Nothing of a frame is here yet."""
        return not (self._missing or self._buffer or self._waiting_for_magic)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes; raises `WireError` if it cannot be ours."""
        if self._opener:
            return [frame for piece in self._opener.feed(data) for frame in self._feed(piece)]
        return self._feed(data)

    def _feed(self, data: bytes) -> list[Frame]:
        missing = self._missing
        if missing:
            pieces = self._pieces
            pieces.append(data[:missing])
            if len(data) < missing:
                if len(pieces) > 999:  # each takes some room besides its bytes
                    pieces[:] = [b"".join(pieces)]
                self._missing = missing - len(data)
                return []
            whole = Frame(self._kind, self._rank, b"".join(pieces))
            pieces.clear()
            return self._cut(data, missing, [whole])
        if self._buffer:
            data = self._buffer + data
        if self._waiting_for_magic:
            data = self._skip_noise(data)
            if self._waiting_for_magic:
                self._buffer = data
                return []
        return self._cut(data, 0, [])

    def _cut(self, data: bytes, start: int, frames: list[Frame]) -> list[Frame]:
        size, bounds = len(data), self._bounds
        self._missing = 0
        while size - start >= 9:
            kind, length, rank = _HEADER.unpack_from(data, start)
            if length > bounds[kind]:
                raise _too_long(kind, length, bounds[kind])
            start += 9
            end = start + length
            if end > size:
                self._kind, self._rank, self._missing = kind, rank, end - size
                self._pieces = [data[start:]]
                start = size
                break
            frames.append(Frame(kind, rank, data[start:end]))
            start = end
        self._buffer = data[start:]
        return frames

    def _skip_noise(self, buffer: bytes) -> bytes:
        at = buffer.find(MAGIC)
        if at >= 0:
            self._waiting_for_magic = False
            self._noise = (self._noise + buffer[:at])[-_NOISE_KEPT:]
            return buffer[at + len(MAGIC) :]
        kept = len(MAGIC) - 1  # the magic may have been cut in two
        self._noise = (self._noise + buffer[:-kept])[-_NOISE_KEPT:]
        return buffer[-kept:]


def _too_long(kind: int, length: int, bound: int) -> WireError:
    what = f"it sent a frame of kind {kind} with {length} bytes; {bound} are the most"
    if kind == GATHER:
        return WireError(f"{what} that the ranks of a host may exchange at a time")
    return WireError(what if bound >= 0 else f"it sent a frame of kind {kind}, which nobody sends there")
