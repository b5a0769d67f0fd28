"""Buffered writes to one non-blocking descriptor, in order.

The queue itself has no limit: its user stops reading its source above `HIGH` pending bytes, and goes on below `LOW`,
as `progress` reports.  What is sent in one round of the loop is written together at its end, so that many small frames
cost one system call; large amounts are written at once.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Lock
    from typing import Protocol

    from mslaunch.runtime.loop import Loop

    class Sealer(Protocol):
        """What writes bytes in records, as `protocol.sealed_records` has them."""

        def writev(self, fd: int, pieces: list[bytes | memoryview]) -> int:
            """As os.writev; after BlockingIOError it gets the same bytes again."""

        def say(self, fd: int, data: bytes) -> object:
            """Write a few bytes."""


HIGH = 1 << 20  #: bytes above which a source must pause
LOW = 1 << 18  #: bytes below which it may go on
_MUCH = 1 << 16
_LITTLE = 512  # what every pipe, socket and terminal takes without blocking once it is writable


class Writer:
    """Writes to `fd`.

    `broken` is called once when the other end is gone; `progress` with the number of bytes that have just gone out.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        broken: Callable[[OSError], None],
        progress: Callable[[int], None] | None = None,
        shared: bool = False,
        sealer: Sealer | None = None,
    ) -> None:
        """`shared`: other processes have the descriptor open, so it stays blocking; few bytes are written at a time,
        when poll reports that they are taken.  `sealer`: writes them in its records.
        """
        self._loop = loop
        self._fd = fd
        self._broken = broken
        self._progress = progress
        self._queue: list[bytes | memoryview] = []
        self.pending = 0
        self.closed = False
        self._waiting = False  # for writability
        self._scheduled = False
        self._shared = shared
        self._writev = sealer.writev if sealer else os.writev
        self._write_now = sealer.say if sealer else os.write
        self.lock: Lock | None = None  #: held while bytes are written, once another thread may `say` something
        if not shared:
            os.set_blocking(fd, False)

    def send(self, *pieces: bytes | memoryview) -> None:
        """Queue `pieces`; they go out in this round of the loop.  After a break, bytes are dropped."""
        if self.closed:
            return
        self._queue += pieces
        self.pending += sum(map(len, pieces))
        if self._waiting:
            return
        if self.pending > _MUCH:
            self._write()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.soon(self._end_of_round)

    def say(self, data: bytes) -> None:
        """Write a few bytes at once, unless others wait already; `progress` does not hear of them.

        Pipes and sockets take so few bytes whole or not at all; if not, bytes are under way anyhow, or it is broken.
        """
        if self.lock:
            with self.lock:
                self._say(data)
        else:
            self._say(data)

    def _say(self, data: bytes) -> None:
        if not self._queue and not self.closed:
            try:
                self._write_now(self._fd, data)
            except OSError:
                pass

    def flush(self) -> None:
        """Write now what can be written; for who will not come back to the loop."""
        if self._queue and not self._waiting:
            self._write()

    def close(self) -> None:
        """Stop; what is pending is dropped.  The descriptor stays open, it is the owner's."""
        if not self.closed:
            if self.lock:
                with self.lock:  # who says something now has ended before the descriptor is closed
                    self.closed = True
            self.closed = True
            self._loop.writer(self._fd, None)
            self._queue.clear()
            self.pending = 0

    def _end_of_round(self) -> None:
        self._scheduled = False
        self.flush()

    def _write(self) -> None:
        before = self.pending
        try:
            if self.lock:
                with self.lock:
                    self._write_all()
            else:
                self._write_all()
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                self._loop.writer(self._fd, self._write)
        except OSError as error:
            self.close()
            if self._progress and before:
                self._progress(before)  # written or dropped: it is not under way any more
            self._broken(error)
            return
        else:
            if self._waiting:
                self._waiting = False
                self._loop.writer(self._fd, None)
        if self._progress and before > self.pending:
            self._progress(before - self.pending)

    def _write_all(self) -> None:
        if self._shared:
            self._write_a_little()
        while self._queue:
            self._wrote(self._writev(self._fd, self._queue[:64]))

    def _write_a_little(self) -> None:
        """One small write, if poll has just said that it will not block; BlockingIOError while there is more."""
        if self._waiting:
            self._wrote(os.write(self._fd, self._queue[0][:_LITTLE]))
        if self._queue:
            raise BlockingIOError

    def _wrote(self, size: int) -> None:
        self.pending -= size
        done = 0
        for piece in self._queue:
            if size < len(piece):
                break
            size -= len(piece)
            done += 1
        del self._queue[:done]
        if size:
            self._queue[0] = memoryview(self._queue[0])[size:]  # no copy: a pipe may take a little of much
