"""Non-blocking reads of one descriptor, until its end."""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop

_FIRST = 1 << 16  # bytes of a read; more once a program fills that
FULL = 1 << 20  #: bytes: no pipe or socket of ours holds more


class FdReader:
    """Owns `fd`: reads it while it is watched, and closes it at its end."""

    def __init__(
        self,
        loop: Loop,
        fd: int,
        received: Callable[[bytes], None],
        closed: Callable[[], None],
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        """`closed` is called once, when nothing more will be received; `read` is called as os.read is."""
        self._loop = loop
        self._fd = fd
        self._received = received
        self._closed = closed
        self._read_from = read
        self._size = _FIRST
        os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        """True once nothing more will be received."""
        return self._fd < 0

    def watch(self, on: bool) -> None:
        """Read, or let the writer wait (back-pressure)."""
        if self._fd >= 0:
            self._loop.reader(self._fd, self._read if on else None)

    def drain(self) -> None:
        """Read what is there by now and close: an orphan of the rank may hold the other end, and write for ever."""
        left = FULL
        while left > 0 and self._fd >= 0:
            size = self._read()
            left = left - size if size else 0
        self.close()

    def close(self) -> None:
        """Read no more."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._loop.reader(fd, None)
            self._closed()
            os.close(fd)

    def _read(self) -> int:
        """Read once; the number of bytes, 0 if there are none."""
        try:
            data = self._read_from(self._fd, self._size)
        except BlockingIOError:
            return 0
        except OSError:  # EIO: the last holder of a pseudo-terminal closed it
            data = b""
        if not data:
            self.close()
        else:
            if len(data) == self._size < FULL:
                self._size *= 4
            self._received(data)
        return len(data)
