"""What the launcher sends to a host, passed on by the thread that connected it (`channel_output`: the other way).

It blocks, so that a host that takes nothing more slows the launcher and no buffer grows.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

_LOOK_AGAIN = 0.5  # seconds after which it is noticed that a host has ended and reads nothing more
_CHUNK = 1 << 16
_WAITING = 1 << 10  # bytes asked for while nothing comes: Python holds memory for that many as long as it waits


class ChannelInput:
    """Moves bytes from a socket to a channel, until either side has ended."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self.over = threading.Event()  #: the host's stream has ended
        self.until = float("inf")  #: the time of `time.monotonic` at which a host that takes nothing is left

    def end(self) -> None:
        """The host's stream has ended: wake whoever feeds it.  Called by paramiko's thread."""
        with contextlib.suppress(OSError):
            self._source.shutdown(socket.SHUT_RD)
        self.over.set()

    def feed(self, channel: Any) -> None:
        """All that comes, and then the end of the stream."""
        channel.settimeout(_LOOK_AGAIN)
        with contextlib.suppress(OSError, EOFError):
            while (data := self._next()) and self._sent(channel, data):
                pass
        with contextlib.suppress(OSError, EOFError):
            channel.shutdown_write()

    def _next(self) -> bytes:
        try:
            return self._source.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self._source.recv(_WAITING)

    def _sent(self, channel: Any, data: bytes) -> bool:
        """Whether the host has taken it all; False once it has ended, or its time is over."""
        while data:
            try:
                data = data[channel.send(data) :]
            except socket.timeout:  # no room in its window, which nobody widens after the end
                if self.over.is_set() or time.monotonic() > self.until:
                    return False
        return True
