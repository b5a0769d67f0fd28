"""The line of a rank: a socket on which it may speak PMI with us; its end is number 3 of the rank's descriptors.

Nobody else can speak for that rank.  It knows no word of what is said.  The surprising thing: a rank that does not read
its replies is cut off, for there is no other bound to what they would fill.
"""

from __future__ import annotations

import os

from mslaunch.lean import TYPE_CHECKING
from mslaunch.wire.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.wire.loop import Loop

_SIZE = 1 << 16
_UNREAD = 1 << 24  #: bytes of replies that a rank may leave unread


class Line:
    """The socket of one rank, our end."""

    def __init__(self, loop: Loop, rank: int, fd: int, heard: Callable[[int, bytes], None]) -> None:
        """`heard` gets what the rank says, and b"" when it hangs up."""
        self._loop = loop
        self.rank = rank
        self.fd = fd
        self._heard = heard
        self._outbox = Outbox(loop, fd, lambda error: None)

    def watch(self, on: bool) -> None:
        """Read, or let the rank wait."""
        if self.fd >= 0:
            self._loop.reader(self.fd, self._readable if on else None)

    def _readable(self) -> None:
        self.read()

    def read(self) -> bool:
        """Take what is there; False if there is nothing more for now."""
        try:
            data = os.read(self.fd, _SIZE) if self.fd >= 0 else b""
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
        self._heard(self.rank, data)
        return bool(data)

    def send(self, data: bytes) -> None:
        """A reply."""
        if self.fd >= 0:
            self._outbox.send(data)
            if self._outbox.pending > _UNREAD:
                self.close()

    def close(self) -> None:
        """The rank has hung up, or is over."""
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
