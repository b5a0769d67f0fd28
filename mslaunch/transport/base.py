"""A link: the byte stream to one agent, whatever carries it.

Opening never blocks and never raises for a host's sake: the launcher gets the two descriptors at once, and end of
stream before HELLO means that the host could not be reached; `failure()` then says why.  This module knows nothing
of frames.  The one surprising thing: `reader` and `writer` may be the same descriptor (a socket), so only `close`
closes them.
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.hosts import Node
from mslaunch.errors import LinkError
from mslaunch.faststd import NamedTuple


class Boot(NamedTuple):
    """How to start an agent on a host that has nothing but python3."""

    command: str  # one line for any login shell
    payload: bytes  # the first bytes on its standard input


class Link:
    """The launcher's end of one link."""

    #: what the launcher must write before any frame: the payload of a bootstrap
    first = b""

    def __init__(self, node: Node, reader: int, writer: int) -> None:
        self.node = node
        self.reader = reader
        self.writer = writer
        self._opened = time.monotonic()

    def begin(self) -> None:
        """Its turn has come (see `LinkPolicy.fanout`); for links that begin by themselves this is nothing."""

    def overdue(self, seconds: float) -> bool:
        """Has it had more than `seconds` to open?  Time in which a person is asked something does not count."""
        return time.monotonic() - self._opened > seconds

    def failure(self) -> LinkError | None:
        """Why the link could not be opened or broke; None if there is nothing more to say than "it ended"."""
        return None

    def noise(self) -> bytes:
        """What the host said outside the protocol (stderr of ssh, of the login shell): the last 4 KiB."""
        return b""

    def stream_ended(self) -> None:
        """The launcher saw the end of `reader`; called once, before `failure` is asked."""

    def close(self) -> None:
        """Close our end; the agent takes that as the order to end its ranks.  May be called twice."""
        for fd in {self.reader, self.writer} - {-1}:
            os.close(fd)
        self.reader = self.writer = -1

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for what carried the link to be gone; False if it is still there."""
        return True

    def kill(self) -> None:
        """What carried the link would not go by itself: end it, if it is ours."""
