"""Frames, the units on a link: a header of nine bytes (kind, length, rank), then the payload.

Bytes that a login shell prints before the agent's magic are no frames: a `Decoder` made with `magic=True` skips them
and keeps them as `noise` for the error message.  There is no version byte, since the agent is the launcher's own
source. docs/wire.md describes the conversation.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_RANK as NO_RANK  # noqa: PLC0414 (users say frames.NO_RANK)
from mslaunch.errors import WireError
from mslaunch.faststd import NamedTuple, struct

MAGIC = b"\0mslaunch agent\n"
MAX_PAYLOAD = 1 << 27

# down: launcher to agent
LAUNCH, STDIN, SIGNAL, END, RESERVE, PROBE, RESTART, TRACE, FILE, DATA, DESCRIBE = range(1, 12)
RELEASE, ANSWER, QUESTION, PART, PAUSE, RESUME, CLEANUP, ROOM, LEASE = range(12, 21)
# up: agent to launcher
HELLO, RESERVED, REACHED, STARTED, STDOUT, STDERR, EXIT, STDIN_TAKEN, FAULT, TRACES, STORED, TOPOLOGY = range(65, 77)
NEED, JOINED, LEFT, ABORT, ALONE, GATHER, ASK, REPLY, SERVES, NOTICE, ENDING, CLEANED, FITS, ALIVE = range(77, 91)
#: those of an agent whose ranks are MPI programs
OF_MPI = (NEED, JOINED, LEFT, ABORT, ALONE, GATHER, ASK, REPLY)

#: what ALIVE may say: processes are being started, which may take longer than a lease; the lease is suspended, as LEASE
#: has asked; the launcher was not heard for a lease, and the agent ends its part.  Without a word it is a sign of life
BUSY, SUSPENDED, GIVEN_UP = b"busy", b"suspended", b"lost"

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
    """Cuts a stream of bytes into frames, however the stream was cut before."""

    def __init__(self, magic: bool = False) -> None:
        self._buffer = b""
        self._more: list[bytes] = []  # what came for a frame that is larger than one read
        self._missing = 0  # bytes that this frame lacks
        self._waiting_for_magic = magic
        self._noise = b""

    @property
    def noise(self) -> bytes:
        """What came before the magic, the last 4 KiB of it."""
        return self._noise + self._buffer if self._waiting_for_magic else self._noise

    @property
    def between(self) -> bool:
        """Nothing of a frame is here yet."""
        return not (self._buffer or self._waiting_for_magic)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes; raises `WireError` if it cannot be ours."""
        if len(data) < self._missing:  # joined once, when all is there: each time would take seconds for 64 MiB
            self._more.append(data)
            self._missing -= len(data)
            return []
        buffer = b"".join((self._buffer, *self._more, data)) if self._buffer else data
        if self._waiting_for_magic:
            buffer = self._skip_noise(buffer)
            if self._waiting_for_magic:
                self._buffer = buffer
                return []
        self._more.clear()
        return self._cut(buffer)

    def _cut(self, buffer: bytes) -> list[Frame]:
        frames = []
        start, size = 0, len(buffer)
        self._missing = 0
        while size - start >= _HEADER.size:
            kind, length, rank = _HEADER.unpack_from(buffer, start)
            if length > MAX_PAYLOAD:
                raise WireError(f"a frame of kind {kind} claims {length} bytes", todo="something else wrote here")
            end = start + _HEADER.size + length
            if end > size:
                self._missing = end - size
                break
            frames.append(Frame(kind, rank, buffer[start + _HEADER.size : end]))
            start = end
        self._buffer = buffer[start:]
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
