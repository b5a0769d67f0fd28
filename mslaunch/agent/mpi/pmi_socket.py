"""The line of a rank: a socket on which it may speak PMI with us; its end is number 3 of the rank's descriptors.

Nobody else can speak for that rank.  It knows no word of what is said.  The surprising thing: a rank that does not read
its replies is cut off, for there is no other bound to what they would fill.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.runtime.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop

_SIZE = 1 << 16
_FULL = 1 << 20  # more than a socket holds
_UNREAD = 1 << 24  #: bytes of replies that a rank may leave unread


class PmiSocket:
    """The socket of one rank, our end."""

    def __init__(self, loop: Loop, rank: int, fd: int, heard: Callable[[int, bytes], None]) -> None:
        """`heard` gets what the rank says, and b"" when it hangs up."""
        self._loop = loop
        self.rank = rank
        self.fd = fd
        self._heard = heard
        self._outbox = Writer(loop, fd, lambda error: None)
        loop.reader(fd, self._read)

    def _read(self) -> None:
        self._take()

    def _take(self) -> int:
        """Read once; the number of bytes, 0 if there is nothing or nothing more will come."""
        if self.fd < 0:  # cut off, by what it said last
            return 0
        try:
            data = os.read(self.fd, _SIZE)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
        self._heard(self.rank, data)
        return len(data)

    def finish(self) -> None:
        """The process has ended: hear what is left, no more than was there, for what it has started may go on."""
        left = _FULL
        while left > 0:
            size = self._take()
            if not size:
                break
            left -= size
        self.close()

    def send(self, data: bytes) -> None:
        """A reply."""
        if self.fd >= 0:
            self._outbox.send(data)
            if self._outbox.pending > _UNREAD:
                self.close()

    def close(self) -> None:
        """The rank has hung up, is over, or does not read."""
        if self.fd >= 0:
            self._loop.reader(self.fd, None)
            self._outbox.close()
            os.close(self.fd)
            self.fd = -1


def pair() -> tuple[int, int]:
    """Two ends of a local stream socket."""
    import _socket

    ours, child = _socket.socketpair(1, 1)  # AF_UNIX, SOCK_STREAM
    return ours.detach(), child.detach()
