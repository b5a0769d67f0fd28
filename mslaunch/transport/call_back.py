"""The listener for agents that call back, the socket on which a launcher waits for them.

It is open from the start of the agents until all have called or nobody is waited for.  Whoever connects has to prove
that it knows the token, which agents get on their standard input (`proved_callers`).
"""

from __future__ import annotations

import os
import time

from mslaunch.faststd import TYPE_CHECKING, NamedTuple, socket
from mslaunch.host.own_addresses import bare_address, network_stack
from mslaunch.protocol.call_proof import bytecode
from mslaunch.protocol.keyed_digest import keyed
from mslaunch.transport.base import Link
from mslaunch.transport.bootstrap.agent_program import program_for
from mslaunch.transport.proved_callers import ProvedCallers

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.protocol.sealed_records import Seals
    from mslaunch.runtime.loop import Loop

    class Carrier(Protocol):
        """The command that has started agents; `open` are the links whose agents may still be there."""

        open: set[CallLink]

        def noise(self) -> bytes:
            """The last 4 KiB of its standard error."""

        def leave(self, link: CallLink, killed: bool) -> None:
            """The agent of a link has ended, or is to be `killed`."""


_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_IPPROTO_IPV6, _IPV6_V6ONLY = 41, 26
_SHUT_WR = 1
_BACKLOG = 1024


def call_terms(port: int, token: bytes, node: str, address_variable: str, addresses: list[str]) -> bytes:
    """The line by which an agent calls back.

    `node`: a variable, on its host, that has the name of the node; or `=NAME`, or `call_proof.ARGUMENT`.  The address
    of the launcher is that of a variable there; `addresses` are tried next.  An agent that has our network stack may
    take addresses that lead to its own host.
    """
    words = (str(port), token.hex(), node, network_stack() or "-", address_variable, *addresses)
    return " ".join(words).encode("ascii") + b"\n"


def token_of_host(token: bytes, node: str) -> bytes:
    """The token of one host alone, made of that of the launch: a host that knows its own cannot pose as another.

    Nor can it pose as the launcher towards another host.
    """
    return keyed(token, "token of a host", node)


class AgentCall(NamedTuple):
    """The connection of an agent that has called back, and was proved."""

    fd: int
    first: bytes  # the modules that the agent waits for
    seals: Seals


class CallListener:
    """Listens on all addresses, at a port that is free."""

    def __init__(self, loop: Loop, token: Callable[[str], bytes], admit: Callable[[str, AgentCall], bool]) -> None:
        """`token(node)`: what the agent of a node has to know.

        `admit(node, call)` takes its connection, or refuses it.
        """
        self._admit = admit
        sock = _listening()
        self.port: int = sock.getsockname()[1]
        self._callers = ProvedCallers(loop, token, sock, self._proved, _address)

    def prepare(self) -> None:
        """Get ready what most agents will need, while they are being started."""
        program_for(bytecode())

    def close(self) -> None:
        """Listen no more.  May be called twice."""
        self._callers.close()

    def _proved(self, node: str, kind: str, sock: socket, seals: Seals) -> None:
        fd = sock.detach()
        if not self._admit(node, AgentCall(fd, program_for(kind), seals)):
            os.close(fd)


def _address(sock: socket) -> str:
    """Where an agent has called: whoever hands its call on calls at another one."""
    return bare_address(sock.getsockname()[0])


def _listening() -> socket:
    """IPv6 and IPv4 on one socket, or IPv4 alone where there is no IPv6."""
    try:
        sock = socket(_AF_INET6, _SOCK_STREAM)
        try:
            sock.setsockopt(_IPPROTO_IPV6, _IPV6_V6ONLY, 0)
            sock.bind(("::", 0))
        except OSError:
            sock.close()
            raise
    except OSError:
        sock = socket(_AF_INET, _SOCK_STREAM)
        sock.bind(("0.0.0.0", 0))
    sock.listen(_BACKLOG)
    sock.setblocking(False)
    return sock


class CallLink(Link):
    """The connection of an agent that has called back."""

    def __init__(self, node: Node, call: AgentCall, carrier: Carrier) -> None:
        super().__init__(node, call.fd, call.fd)
        self.first = call.first
        self.sealer, self.opener = call.seals
        self._rest: socket | None = None  # once it is closed
        self._carrier = carrier
        carrier.open.add(self)

    def noise(self) -> bytes:
        """What the command has said that started the agent."""
        return self._carrier.noise()

    def close(self) -> None:
        """Close our direction, which the agent takes as the order to end its ranks; the other one tells of its end."""
        if self.reader >= 0:
            self._rest = socket(fileno=os.dup(self.reader))
            try:
                self._rest.shutdown(_SHUT_WR)
            except OSError:  # the agent has gone
                pass
            super().close()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of this agent, and of its command, once none of its agents is there any more."""
        ended = self._rest is None or _ends(self._rest, time.monotonic() + seconds)
        if ended:
            self._leave(killed=False)
        return ended

    def kill(self) -> None:
        """The system kills it, when all others of its command have ended."""
        self._leave(killed=True)

    def _leave(self, killed: bool) -> None:
        if self._rest:
            self._rest.close()
            self._rest = None
        self._carrier.leave(self, killed)


def _ends(sock: socket, deadline: float) -> bool:
    """Whether the other side closes the connection; what it still sends is dropped."""
    from _socket import timeout  # TimeoutError since Python 3.10

    while True:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            if not sock.recv(1 << 16):
                return True
        except timeout:
            return False
        except OSError:
            return True
        if time.monotonic() > deadline:
            return False
