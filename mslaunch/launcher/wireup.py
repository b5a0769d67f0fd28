"""Preparing: which address do all nodes reach the first one at, and which of its ports are free?

One node: its own word is enough.  Several: the agent of rank 0's node holds ports and opens a door; the other agents
knock at every address that could be it, and only what a knock has proved is told to the ranks.  Names are never
asked for, and the address from which ssh came is only a candidate.  The surprising thing: a node where no address
answers does not stop the launch (its program may need none); the user is told.
"""

from __future__ import annotations

from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import Endpoint
from mslaunch.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Endpoint", "Wireup"]

PORTS = 2  #: MASTER_PORT and the port of a scheduler


class Wireup:
    """One round of questions to the agents; `done` gets the endpoint and what the user should know."""

    def __init__(
        self,
        hellos: Mapping[int, messages.Hello],
        first: int,
        hosts: list[str],
        send: Callable[[int, bytes], None],
        done: Callable[[Endpoint, str], None],
    ) -> None:
        self._hellos = hellos
        self._first = first
        self._hosts = hosts
        self._send = send
        self._done = done
        self._ports: tuple[int, ...] = ()
        self._candidates: list[str] = []
        self._reached: dict[int, list[str]] = {}

    def begin(self) -> None:
        """Ask the first node for ports."""
        self._send(self._first, frames.encode(frames.RESERVE, payload=str(PORTS).encode()))

    def reserved(self, answer: messages.Reserved) -> None:
        """It has ports; now the others knock."""
        self._ports = answer.ports
        if len(self._hellos) == 1:
            self._finish("127.0.0.1", "")
            return
        self._candidates = self._find_candidates()
        knock = frames.encode(frames.PROBE, payload=messages.pack_probe(self._candidates, answer.probe, answer.token))
        for node in self._hellos:
            if node != self._first:
                self._send(node, knock)

    def _find_candidates(self) -> list[str]:
        """Most likely first: the address by which somebody has come, then those of its interfaces."""
        seen = [hello.seen_from for node, hello in self._hellos.items() if node != self._first and hello.seen_from]
        own = self._hellos[self._first].addresses
        # the launcher's address, as others saw it, is the first node's only if that is the launcher's own host; the
        # token decides
        return list(dict.fromkeys([*(own[:1] if not own[:1] or not own[0].startswith("127.") else ()), *seen, *own]))

    def reached(self, node: int, addresses: list[str]) -> None:
        """What a knock of `node` proved."""
        self._reached[node] = addresses
        if len(self._reached) < len(self._hellos) - 1:
            return
        common = [a for a in self._candidates if all(a in found for found in self._reached.values())]
        if common:
            self._finish(common[0], "")
            return
        best = max(self._candidates or ["127.0.0.1"], key=lambda a: sum(a in found for found in self._reached.values()))
        cut_off = [self._hosts[node] for node, found in self._reached.items() if best not in found]
        self._finish(best, f"{', '.join(cut_off)} cannot reach {self._hosts[self._first]} at {best} (MASTER_ADDR)")

    def silent(self) -> int:
        """The node whose answer is being waited for."""
        if not self._ports:
            return self._first
        return next((node for node in self._hellos if node != self._first and node not in self._reached), self._first)

    def _finish(self, address: str, warning: str) -> None:
        self._done(Endpoint(address, *self._ports), warning)
