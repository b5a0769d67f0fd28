"""A terminal, or whatever the launcher's standard output and error are: a pipe, a file, a socket.

It takes bytes and writes them when they can be written, without ever changing the descriptor that the launcher
shares with its parent: a pipe or terminal is opened a second time, non-blocking, through /proc.  Where that cannot be
done (a socket), small writes are made when poll says that they will not block.  It knows nothing of ranks.  The
surprising thing: a reader that went away (`| head`) is told to the user once and otherwise ignored, here: whoever knows
whether anybody keeps what ranks print asks for `unread`.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.runtime.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop


class OutputFd:
    """One of the launcher's own streams; with `owned`, a file that was opened for it and is closed with it."""

    def __init__(self, loop: Loop, fd: int, name: str, notice: Callable[[str], None], owned: bool = False) -> None:
        #: called whenever bytes have gone out
        self.progress: Callable[[], None] = _nothing
        self._fd = fd
        self._name = name
        self._notice = notice
        self._owned = owned
        self._own = -1
        self._outbox: Writer | None = None
        self.failed = False  # bytes were lost for another reason than a reader that went away
        self.unread = False  # that one
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
            shared = os.get_blocking(self._own)
            self._outbox = Writer(loop, self._own, self._broken, lambda size: self.progress(), shared)

    @property
    def pending(self) -> int:
        """Bytes that have not been taken yet."""
        return self._outbox.pending if self._outbox else 0

    def send(self, data: bytes) -> None:
        """Write `data`, now or when it can be taken."""
        if self._gone:
            return
        if self._outbox:
            self._outbox.send(data)
            return
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._broken(error)

    def _broken(self, error: OSError) -> None:
        self._gone = True
        if error.errno == errno.EPIPE:
            self.unread = True
            self._notice(f"the reader of {self._name} is gone; what ranks print there is dropped")
        else:
            self.failed = True
            self._notice(f"{self._name}: {error.strerror}; what follows is lost")
        self.progress()  # who waits for room need not wait any more

    def flush(self) -> None:
        """Write now what can be written."""
        if self._outbox:
            self._outbox.flush()

    def drop(self) -> None:
        """Nobody reads: forget what is pending and what will come.  A file has no reader to wait for, and goes on."""
        if self._outbox:
            self._outbox.close()
            self._gone = True

    def close(self) -> None:
        """Drop what is pending and give the second descriptor back."""
        if self._outbox:
            self._outbox.close()
            os.close(self._own)
            self._outbox = None
            self._gone = True
        if self._owned:
            self._owned = False
            self._gone = True
            os.close(self._fd)


def _nothing() -> None:
    """Nobody waits."""
