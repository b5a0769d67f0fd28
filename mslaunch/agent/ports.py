"""The ports that this node holds, for a job that is being prepared and for services that do not run yet.

Ports are held by listening until ranks start; a service takes its own over.  One port more proves to other nodes that
an address is this node's.
"""

from __future__ import annotations

import os

from mslaunch.agent import on_demand
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.free_ports import Listener
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.launcher_link import AgentContext
    from mslaunch.runtime.loop import Loop


class TokenListener:
    """Proves to the other agents that an address is this node's: who connects gets `token`."""

    def __init__(self, loop: Loop) -> None:
        self.token = os.urandom(8).hex()
        self._loop = loop
        self._listener = Listener()
        self.port = self._listener.port
        loop.reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            client = self._listener.accept()
        except OSError:
            return
        try:
            client.send(self.token.encode())
        except OSError:
            pass
        client.close()

    def close(self) -> None:
        """No more proofs are needed."""
        self._loop.reader(self._listener.fileno(), None)
        self._listener.close()


class ServicePort:
    """The port of a service that does not run yet, held by listening and handed over when somebody connects.

    So a job that never connects to the service costs no more than an open port.
    """

    def __init__(self, loop: Loop, number: int, listener: Listener | None, connected: Callable[[], None]) -> None:
        """`number` 0: the service has none; `listener` holds it already.

        `connected` is called when somebody has connected, and the port is free again.
        """
        self.number = number
        self._loop = loop
        self._connected = connected
        self._listener = listener
        self._held = listener  # with it goes its claim to the port

    def wait(self) -> None:
        """Wait for a connection; raises OSError if another process has taken the port."""
        if self._listener is None:
            self._listener = Listener(self.number)
        self._loop.reader(self._listener.fileno(), self._readable)

    def _readable(self) -> None:
        """Hand over the port before anything else is done.

        Closing resets those who have connected, and they try again within half a second; but a client that had the time
        to send its registration may wait 15 s for an answer that nobody will give (docs/design.md).
        """
        self.hand_over()
        self._connected()

    def hand_over(self) -> None:
        """Let somebody else bind it; other agents still know it as ours."""
        if self._listener:
            self._loop.reader(self._listener.fileno(), None)
            self._listener.hand_over()
            self._listener = None

    def close(self) -> None:
        """Nobody needs it any more."""
        self.hand_over()
        if self._held:
            self._held.close()


class Ports:
    """RESERVE and PROBE."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self.held: dict[int, Listener] = {}  #: by port; whoever takes one out closes it
        self._listener: TokenListener | None = None

    def reserve(self, payload: bytes) -> None:
        """Hold the ports that the payload names."""
        wanted = control.PortRequest()
        try:
            for wanted in control.unpack_ports(payload):
                held = Listener(*wanted, claim=True)
                self.held[held.port] = held
            wanted = control.PortRequest()
            self._listener = TokenListener(self._context.loop)
        except OSError as error:
            self._refuse(wanted, error)
            return
        answer = control.Reserved(tuple(self.held), self._listener.port, self._listener.token)
        self._context.link.send(frames.RESERVED, frames.NO_RANK, control.pack_record(answer))

    def _refuse(self, wanted: control.PortRequest, error: OSError) -> None:
        def refuse() -> None:
            module = on_demand.get("host.listeners")
            assert module
            self._context.link.not_started(frames.NO_RANK, module.refused(*wanted, error))

        self._context.need("host.listeners", refuse)

    def probe(self, payload: bytes) -> None:
        """Try the addresses of another node."""
        from mslaunch.agent.reachability import Prober

        Prober(self._context.loop, *control.unpack_record(control.Probe, payload), self._reached)

    def _reached(self, found: list[str]) -> None:
        self._context.link.send(frames.REACHED, frames.NO_RANK, control.pack_record(control.Reached(tuple(found))))

    def stop_proving(self) -> None:
        """No more proofs are needed."""
        if self._listener:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Give all ports back."""
        while self.held:
            self.held.popitem()[1].close()
