"""The ports that this node holds for a job that is being prepared, and the proofs of its addresses.

Ports are held by listening until ranks start; a service takes its own over.  It speaks with the launcher in whole
frames.  The surprising thing: why a port cannot be had is known by a module that travels only then (`listening`).
"""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.agent.reachability import Prober, TokenListener
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.free_ports import Listener
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mslaunch.errors import LaunchError
    from mslaunch.runtime.loop import Loop

    class PortSink(Protocol):
        """Who carries frames to the launcher: the agent."""

        def send(self, kind: int, rank: int, payload: bytes) -> None:
            """One frame."""

        def not_started(self, rank: int, error: LaunchError) -> None:
            """What cannot be had."""


class Ports:
    """RESERVE and PROBE."""

    def __init__(self, loop: Loop, sink: PortSink, need: Callable[[str, Callable[[], None]], None]) -> None:
        """`need` goes on when a part is here."""
        self._loop = loop
        self._sink = sink
        self._need = need
        self.held: dict[int, Listener] = {}  #: by port; whoever takes one out closes it
        self._door: TokenListener | None = None

    def reserve(self, payload: bytes) -> None:
        """Hold the ports that the payload names."""
        wanted = control.PortRequest()
        try:
            for wanted in control.unpack_ports(payload):
                held = Listener(*wanted, claim=True)
                self.held[held.port] = held
            wanted = control.PortRequest()
            self._door = TokenListener(self._loop)
        except OSError as error:
            self._refuse(wanted, error)
            return
        answer = control.Reserved(tuple(self.held), self._door.port, self._door.token)
        self._sink.send(frames.RESERVED, frames.NO_RANK, control.pack_reserved(answer))

    def _refuse(self, wanted: control.PortRequest, error: OSError) -> None:
        def refuse() -> None:
            module = on_demand.get("host.listeners")
            assert module
            self._sink.not_started(frames.NO_RANK, module.refused(*wanted, error))

        self._need("host.listeners", refuse)

    def probe(self, payload: bytes) -> None:
        """Try the addresses of another node."""
        Prober(self._loop, *control.unpack_probe(payload), self._reached)

    def _reached(self, found: list[str]) -> None:
        self._sink.send(frames.REACHED, frames.NO_RANK, control.pack_addresses(found))

    def close_door(self) -> None:
        """No more proofs are needed."""
        if self._door:
            self._door.close()

    def close(self) -> None:
        """Give all ports back."""
        while self.held:
            self.held.popitem()[1].close()
