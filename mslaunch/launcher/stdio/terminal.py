"""The launcher's standard output and error as sinks that never block: a terminal, a pipe, a socket or a file.

The descriptor is shared with the parent process, so its flags are never changed: a pipe or terminal is opened a second
time through /proc, non-blocking; for a socket, which cannot be, small writes are made when poll says they will not
block.  A broken pipe (`| head`) is reported once and then ignored; callers check `unread` to decide whether the job
must end.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.runtime.fd_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop


FLUSH_SECONDS = 3.0  #: that a device which takes nothing is waited for at the end of a launch


class OutputFd:
    """One device.  With `owned` the descriptor is closed with it; `notice` tells the user of an error, once."""

    def __init__(self, loop: Loop, fd: int, name: str, notice: Callable[[str], None], owned: bool = False) -> None:
        #: called whenever bytes have gone out
        self.progress: Callable[[], None] = lambda: None
        self._loop = loop
        self._fd = fd
        self._name = name
        self._notice = notice
        self._owned = owned
        self._own = -1
        self._queue: Writer | None = None
        self.failed = False  #: bytes were lost, and not because the reader has gone
        self.unread = False  #: the reader has gone
        self._gone = False
        try:
            mode = os.fstat(fd).st_mode
        except OSError:  # closed, as in >&-
            self._gone = True
            return
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd):
            try:
                self._own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            except OSError:
                self._own = os.dup(fd)
            self._queue = self._make_queue()

    def _make_queue(self) -> Writer:
        shared = os.get_blocking(self._own)
        return Writer(self._loop, self._own, self._broken, lambda size: self.progress(), shared)

    @property
    def pending(self) -> int:
        """Bytes that the device has not taken yet."""
        return self._queue.pending if self._queue else 0

    def send(self, data: bytes) -> None:
        """Write `data`, now or when it can be taken."""
        if self._gone:
            return
        if self._queue:
            self._queue.send(data)
            return
        try:
            write_all(self._fd, data)
        except OSError as error:
            self._broken(error)

    def _broken(self, error: OSError) -> None:
        self._gone = True
        if error.errno == errno.EPIPE:
            self.unread = True
            self._notice(f"the reader of {self._name} is gone; further output of ranks is dropped")
        else:
            self.failed = True
            self._notice(f"{self._name}: {error.strerror}; further output is lost")
        self.progress()  # whoever waits for room need not

    def flush(self) -> None:
        """Write now what can be written."""
        if self._queue:
            self._queue.flush()

    def drop(self) -> None:
        """Nobody reads: drop what is pending.  A regular file has nothing pending."""
        if self._queue and not self._gone:
            self._queue.close()
            self._queue = self._make_queue()

    def close(self) -> None:
        """Drop what is pending and give the second descriptor back."""
        if self._queue:
            self._queue.close()
            os.close(self._own)
            self._queue = None
            self._gone = True
        if self._owned:
            self._owned = False
            self._gone = True
            os.close(self._fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to a descriptor that blocks.  Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def same_device(one: int, other: int) -> bool:
    """Whether two descriptors are one terminal, pipe or socket (`2>&1`), so that one queue must feed both."""
    try:
        a, b = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev) and not stat.S_ISREG(a.st_mode)
