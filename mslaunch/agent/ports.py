"""The ports that this node holds, for a job that is being prepared and for services that do not run yet.

Ports are held until ranks start, by binding them; a service takes its own over.  One port more proves to other nodes
that an address is this node's (`reachability`).
"""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.free_ports import Listener
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.agent.launcher_link import AgentContext
    from mslaunch.agent.reachability import TokenListener
    from mslaunch.datamodel.node_plan import ServicePlan

_PAUSES = (0.02, 0.5)  # seconds between two looks at connections that do not count, at first and at most


class ServicePort:
    """The port of a service that does not run yet: held, and listened at until somebody of the job connects.

    So a job that never connects to the service costs no more than an open port.  Whoever else connects is turned away,
    and the port is kept.  Even for a rank it is only given up when the service is about to bind it (`hand_over`).
    """

    def __init__(
        self, context: AgentContext, service: ServicePlan, listener: Listener | None, connected: Callable[[], None]
    ) -> None:
        """`listener` holds the port already.

        `connected` is called when a rank has connected, and then not before the next `wait`: from one of the other
        `hosts` of the service, by their addresses, or a process of our own user here.
        """
        self.number = service.port  #: 0: it has none
        self._service = service.number
        self._hosts = service.hosts
        self._context = context
        self._loop = context.loop
        self._connected = connected
        self._listener = listener
        self._held = listener  # with it go its claim to the port, and the address to listen at
        self._listens = False
        self._told = False
        self._refused = False
        self._pause = _PAUSES[0]

    @property
    def address(self) -> str:
        """Where the service listens; "": nobody knows."""
        return self._held.address if self._held else ""

    def wait(self) -> None:
        """Wait for a connection; raises OSError if another process has taken the port."""
        self._told = False
        if self._listener is None:
            self._listener = Listener(self.number, address=self.address)
        if not self._listens:
            self._listener.listen()
            self._listens = True
            self._context.need("host.connection_owners", self._watch)

    def _watch(self) -> None:
        if self._listener and self._listens:
            self._loop.reader(self._listener.fileno(), self._readable)

    def _readable(self) -> None:
        """Look who has connected, and reset all connections: a rank tries again within half a second.

        At once, for a rank that has had the time to send its registration may wait 15 s for an answer (docs/design.md).
        """
        module = on_demand.get("host.connection_owners")
        assert self._listener
        found = module.turn_away(self._listener.accept, self._hosts)
        refused = [who for who in found if who]
        if refused and not self._refused:
            self._refused = True
            self._context.link.notice(self._service, module.refusal(self.number, refused[0]))
        if None not in found:  # somebody may do this all day, and the table of sockets is long on some hosts
            self._loop.reader(self._listener.fileno(), None)
            self._loop.after(self._pause, self._watch)
            self._pause = min(2 * self._pause, _PAUSES[1])
        elif not self._told:
            self._told = True
            self._connected()

    def hand_over(self) -> None:
        """Let somebody else bind it; other agents still know it as ours.  Connections that wait are reset."""
        if self._listener:
            self._loop.reader(self._listener.fileno(), None)
            self._listener.hand_over()
            self._listener, self._listens = None, False

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
        ports, address = control.unpack_ports(payload), control.unpack_address(payload)
        if any(wanted.port for wanted in ports):
            self._context.need("agent.port_claims", lambda: self._reserve(ports, address))
        else:
            self._reserve(ports, address)

    def _reserve(self, ports: Sequence[control.PortRequest], address: str) -> None:
        claim = on_demand.get("agent.port_claims").claim if any(wanted.port for wanted in ports) else None
        wanted = control.PortRequest()
        port, token = 0, ""
        try:
            for wanted in ports:
                held = Listener(*wanted, claim, address)
                self.held[held.port] = held
            wanted = control.PortRequest()
            if not address:
                from mslaunch.agent.reachability import TokenListener

                self._listener = TokenListener(self._context.loop)
                port, token = self._listener.port, self._listener.token
        except OSError as error:
            self._refuse(wanted, error)
            return
        answer = control.Reserved(tuple(self.held), port, token)
        self._context.link.send(frames.RESERVED, frames.NO_RANK, control.pack_record(answer))

    def _refuse(self, wanted: control.PortRequest, error: OSError) -> None:
        def refuse() -> None:
            refused = on_demand.get("host.listeners").refused(*wanted, error)
            self._context.link.not_started(frames.NO_RANK, refused)

        self._context.need("host.listeners", refuse)

    def probe(self, payload: bytes) -> None:
        """Try the addresses of another node."""
        from mslaunch.agent.reachability import Prober

        Prober(self._context.loop, self._context.need, control.unpack_record(control.Probe, payload), self._reached)

    def _reached(self, found: control.Reached) -> None:
        self._context.link.send(frames.REACHED, frames.NO_RANK, control.pack_record(found))

    def stop_proving(self) -> None:
        """No more proofs are needed."""
        if self._listener:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Give all ports back."""
        while self.held:
            self.held.popitem()[1].close()
