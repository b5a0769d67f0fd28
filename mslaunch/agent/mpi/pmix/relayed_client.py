"""A connection of a rank's library to libpmix that passes through this process, as bytes in both directions."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, struct
from mslaunch.runtime.fd_reader import FdReader
from mslaunch.runtime.fd_writer import HIGH, LOW, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop

_HEADER = struct.Struct("=iIII")  # of a message of libpmix, since 3.0: index, tag, bytes that follow, padding
_LARGEST = 1 << 15  # bytes of a first message: names and a credential, some 300 with libpmix's own, 1,000 with munge's


class _Half:
    """One of the two sockets: what it receives goes to the other one, which slows it down."""

    def __init__(self, loop: Loop, fd: int, received: Callable[[bytes], None], closed: Callable[[], None]) -> None:
        self.reader = FdReader(loop, fd, received, self._at_end)
        self._writer = Writer(loop, fd, lambda _: self.reader.close(), self._progress)
        self.other: _Half | None = None
        self._closed = closed
        self._last = False  # close once all is written

    def send(self, data: bytes) -> None:
        """Bytes for this socket."""
        self._writer.send(data)
        if self.other and self._writer.pending > HIGH:
            self.other.reader.watch(False)

    def end(self) -> None:
        """Close once what was sent has gone out."""
        self._last = True
        self._writer.flush()
        self._progress(0)

    def _progress(self, _: int) -> None:
        if self._last and not self._writer.pending:
            self.reader.close()
        elif self.other and self._writer.pending < LOW:
            self.other.reader.watch(True)

    def _at_end(self) -> None:
        self._writer.close()
        self._closed()


class RelayedClient:
    """One connection; it is passed on once its first message is whole."""

    def __init__(self, loop: Loop, fd: int, began: Callable[[bytes, bool], None]) -> None:
        """`began` is called once, with all that has come by then, and whether the first message is whole.

        If it is, nothing more is read until `relay`; if not, the connection is being closed.
        """
        self._loop = loop
        self._began: Callable[[bytes, bool], None] | None = began
        self._first = b""
        self._library: _Half | None = None
        self._client = _Half(loop, fd, self._from_client, self._client_ended)
        self._client.reader.watch(True)

    def close(self) -> None:
        """Close it, from our side."""
        self._client.reader.close()

    def hurry(self) -> None:
        """The first message must be whole by now."""
        if self._began:
            self.close()

    def relay(self, fd: int) -> None:
        """Pass on what comes after the first message to the library, which `fd` is connected with, and back."""
        self._library = _Half(self._loop, fd, self._client.send, self._client.end)
        self._client.other, self._library.other = self._library, self._client
        self._library.reader.watch(True)
        if self._client.reader.closed:
            self._library.end()
        else:
            self._client.reader.watch(True)

    def _from_client(self, data: bytes) -> None:
        if self._library:
            self._library.send(data)
            return
        self._first += data
        if len(self._first) < _HEADER.size:
            return
        size = _HEADER.unpack_from(self._first)[2]
        if size > _LARGEST:
            self.close()
        elif len(self._first) >= _HEADER.size + size:
            self._client.reader.watch(False)
            self._begin(True)

    def _begin(self, whole: bool) -> None:
        began, self._began = self._began, None
        if began:
            began(self._first, whole)

    def _client_ended(self) -> None:
        self._begin(False)
        if self._library:
            self._library.end()
