"""The launcher's end of a link to a played host, and the opener that makes such links, a row in the transports' table.

The far end is handed over at once; the host is called when the link's turn comes (`--fanout`), where another transport
would begin to connect.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import LinkError
from mslaunch.transport import transport_table
from mslaunch.transport.base import Link, OpenContext
from mslaunch.transport.bootstrap.agent_program import program_for
from simulate_lib.one_stream import OneStream
from simulate_lib.played_agent import Traits

WORD = "played"


class PlayedLink(Link):
    """A socketpair; `call(index)` has the process that plays take the far end for a host that is called."""

    program = staticmethod(program_for)

    def __init__(self, node: Node, index: int, fd: int, call: Callable[[int], None]) -> None:
        super().__init__(node, fd, fd)
        self._index = index
        self._call = call
        self._begun = self.refused = False

    def begin(self) -> None:
        """Its turn has come."""
        if not self._begun:
            self._begun = True
            self._opened = time.monotonic()
            self._call(self._index)

    def overdue(self, seconds: float) -> bool:
        """Waiting for its turn does not count."""
        return self._begun and super().overdue(seconds)

    def failure(self) -> LinkError | None:
        if self.refused:
            return LinkError("port 22: Connection refused", self.node.name, "is sshd running there?")
        return None


class PlayedTransport:
    """The transport of one launch, in place of the others; it puts itself into the table."""

    def __init__(
        self, orders: socket.socket, traits: Traits, index_of: Callable[[str], int], links: OneStream | None = None
    ) -> None:
        """`index_of` a host, by its name; `links`: those without descriptors, if these are to be used."""
        self._orders = orders
        self._traits = traits
        self._index_of = index_of
        self._links = links
        self._asked = False
        self.on_message: Callable[[str], None] = lambda text: None
        self.on_open: Callable[[], None] = lambda: None
        transport_table.load = lambda row: self.open  # type: ignore[assignment]
        transport_table.TRANSPORTS[WORD] = "played"

    def open(self, nodes: Sequence[Node], context: OpenContext) -> None:
        """See `base.Opener`."""
        if not self._asked:
            self._asked = True
            self.on_open()
            context.loop.reader(self._orders.fileno(), self._read)
            if self._links:
                self._links.on_message = self.on_message
        for node in nodes:
            index = self._index_of(node.name)
            link = self._link(node, index)
            link.refused = self._traits.refuses(index)
            context.opened(link)

    def _link(self, node: Node, index: int) -> PlayedLink:
        if self._links:
            links, number = self._links, self._links.open()
            return PlayedLink(node, index, number, lambda index: links.call(number, index))
        near, far = socket.socketpair()
        socket.send_fds(self._orders, [b"%d" % index], [far.fileno()])
        far.close()
        return PlayedLink(node, index, near.detach(), self._call)

    def _call(self, index: int) -> None:
        self._orders.send(b"call %d" % index)

    def _read(self) -> None:
        message = self._orders.recv(64)
        if message:
            self.on_message(message.decode())
