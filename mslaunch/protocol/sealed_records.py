"""Records that nobody in between can change: what binds the bytes of a connection to the token of its two ends.

    record   LENGTH (four bytes), DIGEST (sixteen), and that many bytes

The digest is keyed BLAKE2b (RFC 7693) over the number of the record, LENGTH and the bytes.  Records are counted from 0
in each direction, and each direction has a key of its own, which is made of the token and of the nonces of this one
connection (`call_proof.seals`).  So a record that was changed, dropped, repeated, moved, sent back, or taken from
another connection is refused, and so is all that follows it.  Bytes are handed on only once their digest was right.
The bytes can be read by whoever is in between, who can also end the connection, as ever.
"""

from __future__ import annotations

import os
from _operator import _compare_digest

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, struct
from mslaunch.protocol.keyed_digest import blake2b

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn, Union

    Piece = Union[bytes, memoryview]

LONGEST = 1 << 17  #: bytes of a record: a write of a whole pipe takes one, and a digest costs little beside its bytes
CHANGED = "what has arrived is not what was sent: somebody in between has changed it"
_TODO = "the connection is not encrypted; docs/security.md says who can be in between, and how to use SSH instead"
_HEAD = struct.Struct("!I16s")
_COUNTED = struct.Struct("!QI")
_CHUNK = 1 << 16
_MANY = 999  # pieces of a record that are kept apart: each takes some room besides its bytes


class Seals(NamedTuple):
    """What makes records of the bytes that one end sends, and what opens those that it receives."""

    sealer: RecordSealer
    opener: RecordOpener


class RecordSealer:
    """Makes the records of one direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0  # of the next record
        self._rest: list[Piece] = []  # of a record that has not gone out as a whole
        self._size = 0  # bytes that this record holds

    def seal(self, *pieces: Piece) -> list[Piece]:
        """The next record, which holds all of these bytes, as pieces again."""
        size = sum(map(len, pieces))
        assert size <= LONGEST, size
        found = _begun(self._key, self._number, size)
        for piece in pieces:
            found.update(piece)
        self._number += 1
        return [_HEAD.pack(size, found.digest()), *pieces]

    def writev(self, fd: int, pieces: Sequence[Piece]) -> int:
        """Write a record of the first of these bytes, as many as it can hold; returns how many, once it is out.

        Raises what os.writev raises.  After BlockingIOError it must be called with the same bytes once more, which
        others may follow: the record is made already.
        """
        if not self._rest:
            held = _first(pieces)
            self._size = sum(map(len, held))
            self._rest = self.seal(*held)
        while self._rest:
            self._drop(os.writev(fd, self._rest))
        return self._size

    def _drop(self, size: int) -> None:
        """So many bytes of the record have gone out."""
        rest = self._rest
        while rest and size >= len(rest[0]):
            size -= len(rest.pop(0))
        if size:
            rest[0] = memoryview(rest[0])[size:]

    def say(self, fd: int, data: bytes) -> None:
        """Write a few bytes, which pass whole or not at all, while no record is on its way.

        If this raises OSError, it is as if nothing had been said.
        """
        try:
            os.write(fd, b"".join(self.seal(data)))
        except OSError:
            self._number -= 1
            raise


def _first(pieces: Sequence[Piece]) -> list[Piece]:
    """What one record holds of them."""
    found: list[Piece] = []
    room = LONGEST
    for piece in pieces:
        if len(piece) >= room:
            return [*found, memoryview(piece)[:room]]
        found.append(piece)
        room -= len(piece)
    return found


class RecordOpener:
    """Takes records apart, however their bytes were cut, and hands on what they hold."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0  # of the record that comes
        self._head = b""  # of that record, as far as it is here
        self._pieces: list[bytes] = []  # that are here behind its head
        self._missing = 0  # bytes that are not
        self._found = _begun(key, 0, 0)  # the digest of what is here
        self._opened: list[bytes] = []  # that `read` has left

    def feed(self, data: bytes) -> list[bytes]:
        """What is held by the records that `data` completes, in pieces.

        Raises `WireError` if a record is not what was sent, and from then on for whatever comes.
        """
        opened, self._opened, at = self._opened, [], 0
        while at < len(data):
            lacking = _HEAD.size - len(self._head)
            if lacking:
                self._head += data[at : at + lacking]
                at += lacking
                if len(self._head) < _HEAD.size:
                    break
                self._begin()
            else:
                piece = data[at : at + self._missing]
                self._add(piece)
                at += len(piece)
            if not self._missing:
                opened += self._end()
        return opened

    def _begin(self) -> None:
        size, _ = _HEAD.unpack(self._head)
        if size > LONGEST:
            self._refuse()
        self._missing = size
        self._found = _begun(self._key, self._number, size)

    def _add(self, piece: bytes) -> None:
        self._missing -= len(piece)
        self._found.update(piece)
        self._pieces.append(piece)
        if len(self._pieces) > _MANY:
            self._pieces = [b"".join(self._pieces)]

    def _end(self) -> list[bytes]:
        """The record is here as a whole."""
        if not _compare_digest(_HEAD.unpack(self._head)[1], self._found.digest()):
            self._refuse()
        pieces, self._pieces = self._pieces, []
        self._head = b""
        self._number += 1
        return pieces

    def _refuse(self) -> NoReturn:
        self._head, self._missing, self._number = bytes(_HEAD.size), 0, -1
        raise WireError(CHANGED, todo=_TODO)

    def read(self, size: int, receive: Callable[[int], bytes]) -> bytes:
        """So many bytes; what follows them is for the next `feed` or `read`.

        `receive` waits for some bytes, of records.  Raises OSError if they end too early, and `WireError`.
        """
        while sum(map(len, self._opened)) < size:
            data = receive(_CHUNK)
            if not data:
                raise ConnectionError("the other side ended the connection")
            self._opened = self.feed(data)
        whole = b"".join(self._opened)
        self._opened = [whole[size:]]
        return whole[:size]


def _begun(key: bytes, number: int, size: int) -> blake2b:
    """The digest of a record before its bytes."""
    return blake2b(_COUNTED.pack(number, size), key=key, digest_size=16)
