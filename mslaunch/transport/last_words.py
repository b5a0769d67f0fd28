"""What a program says on its standard error: a pipe that is read as it fills, and of which the last 4 KiB are kept.

So a program that says much does not wait, and fills neither a disk nor the memory.  Nobody waits for the end of the
pipe: what a program leaves behind, such as the master of ssh's ControlPersist, may hold it open for as long as it runs.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.runtime.loop import Loop

_KEPT = 4096  # bytes
_CHUNK = 1 << 16  # bytes of a read: what a pipe holds, unless it was made larger
_LOOK = 1.0  # seconds after which a thread that listens sees that another one has closed the pipe: that wakes nobody
_MOST = 32  # reads in which all that a pipe holds has come, even one of 1 MiB


class LastWords:
    """Those of one program, which gets `pipe` as its standard error."""

    def __init__(self) -> None:
        from _thread import allocate_lock

        self._lock = allocate_lock()  # whoever waits for the end of the program may read beside a thread that listens
        self._fd, self.pipe = os.pipe()
        os.set_blocking(self._fd, False)
        self._kept = b""
        self._loop: Loop | None = None

    def begin(self, loop: Loop | None = None) -> None:
        """Read in the turns of `loop`, now that the program has its end; without one, the owner calls `read`."""
        os.close(self.pipe)
        self._loop = loop
        if loop:
            loop.reader(self._fd, self.read)

    def fileno(self) -> int:
        """Our end of the pipe; -1 once it is closed."""
        return self._fd

    def listen(self) -> None:
        """Read in the thread of the caller until the pipe ends or is closed."""
        import select

        while (fd := self._fd) >= 0:
            more = select.poll()
            more.register(fd, select.POLLIN)
            more.poll(_LOOK * 1000)
            self.read()

    def read(self) -> bool:
        """Read once; False if there is nothing, or nothing more."""
        with self._lock:
            return self._fd >= 0 and self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close()
            return False
        self._kept = (self._kept + data)[-_KEPT:]
        return True

    def said(self) -> bytes:
        """The last 4 KiB of all that has been said by now."""
        for _ in range(_MOST):
            if not self.read():
                break
        return self._kept

    def close(self) -> None:
        """Read no more, and keep what was said."""
        self.said()
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            if self._loop:
                self._loop.reader(self._fd, None)
            os.close(self._fd)
            self._fd = -1
