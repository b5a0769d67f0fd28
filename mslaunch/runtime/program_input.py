"""The standard input of one program: bytes on their way into a pipe."""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.runtime.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop


class InputStream:
    """Owns `fd`, the end of a pipe."""

    def __init__(self, loop: Loop, fd: int, taken: Callable[[int], None]) -> None:
        """`taken(size)`: so many bytes were written, or will never be read."""
        self._fd = fd
        self._taken = taken
        self._ending = False
        self._writer = Writer(loop, fd, lambda error: self.close(), self._progress)

    def feed(self, data: bytes) -> None:
        """Bytes for the program; b"" closes the stream once they are written."""
        if self._fd < 0:
            self._taken(len(data))
        elif data:
            self._writer.send(data)
        else:
            self._ending = True
            self._progress(0)

    def _progress(self, size: int) -> None:
        if size:
            self._taken(size)
        if self._ending and not self._writer.pending:
            self.close()

    def close(self) -> None:
        """Nobody reads any more."""
        if self._fd >= 0:
            left = self._writer.pending
            self._writer.close()
            os.close(self._fd)
            self._fd = -1
            self._taken(left)
