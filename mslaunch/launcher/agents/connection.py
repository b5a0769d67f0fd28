"""A peer: the launcher's side of one agent, from the link that is opened to its end.

It cuts what comes into frames, and knows what HELLO is only as far as the reason is concerned why a link ended.  The
surprising thing: it can stop reading (`watch`), and then the agent's host fills its buffers and the ranks there wait.
"""

from __future__ import annotations

import os

from mslaunch.errors import LinkError, WireError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol import frames
from mslaunch.runtime.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.topology import Topology
    from mslaunch.protocol import control
    from mslaunch.runtime.loop import Loop
    from mslaunch.transport.base import Link

_CHUNK = 1 << 18


class AgentConnection:
    """The launcher's side of one agent: frames go to `handle`, the end of the link to `ended`.

    `progress` hears how many bytes have just gone down to the agent.
    """

    def __init__(self, loop: Loop, link: Link) -> None:
        self.link = link
        self.node = link.node
        self.hello: control.Hello | None = None
        self.topology: Topology | None = None
        self.handle: Callable[[frames.Frame], None] = self._ignore
        self.ended: Callable[[LinkError | None], None] = self._ignore
        self.progress: Callable[[int], None] = self._ignore
        self._loop = loop
        self._decoder = frames.Decoder(magic=True)
        # a broken link: the reader will see the end
        self._outbox = Writer(loop, link.writer, lambda error: None, self._went)
        self._over = False
        os.set_blocking(link.reader, False)
        if link.first:
            self._outbox.send(link.first)
        self.watch(True)

    @property
    def pending(self) -> int:
        """Bytes on their way to the agent."""
        return self._outbox.pending

    def _ignore(self, _: object) -> None:
        pass

    def _went(self, size: int) -> None:
        self.progress(size)

    def watch(self, on: bool) -> None:
        """Read from the agent, or let it wait."""
        if not self._over:
            self._loop.reader(self.link.reader, self._read if on else None)

    def send(self, frame: bytes) -> None:
        """One frame, down; in pieces, for what is left of one after a write is copied."""
        if len(frame) <= _CHUNK:
            self._outbox.send(frame)
        else:
            self._outbox.send(*(frame[at : at + _CHUNK] for at in range(0, len(frame), _CHUNK)))

    def _read(self) -> None:
        try:
            data = os.read(self.link.reader, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        try:
            for frame in self._decoder.feed(data):
                self.handle(frame)
        except WireError as error:
            self.close()
            self.ended(LinkError(error.what, self.node.name, "something else may write on its standard output"))

    def _end(self) -> None:
        self._stop()
        self.link.stream_ended()
        if self.hello:
            self.ended(self.link.failure())
            return
        from mslaunch.launcher.agents.diagnose_start import explain

        self.ended(explain(self.link, self._decoder.noise))

    def _stop(self) -> None:
        if not self._over:
            self._loop.reader(self.link.reader, None)
            self._over = True
            self._outbox.close()

    def close(self) -> None:
        """Close the link: the agent ends what it still holds."""
        self._stop()
        self.link.close()


def meaningless(frame: frames.Frame) -> WireError:
    """What is wrong with a frame that nobody expects; to be raised by who handles it, and ends the link."""
    return WireError(f"it sent a frame of kind {frame.kind} for rank {frame.rank}, which means nothing here")
