"""The listener for agents that call back, the only socket on which a launcher listens.

It is open from the start of the agents until all have called or nobody is waited for.  Whoever connects has five
seconds to prove that it knows the token, which agents get on their standard input (`protocol.call_proof`); it learns
nothing before.  Of one address eight connections at most may be without a proof, the newest ones, and 256 in all, so
that a flood from one host does not keep others out; an agent that is cut off calls again.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING, partial, socket
from mslaunch.protocol.call_proof import CALL, LONGEST, new_nonce, proof, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop, Timer

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_SOL_SOCKET, _SO_REUSEADDR, _IPPROTO_IPV6, _IPV6_V6ONLY = 1, 2, 41, 26
_IPPROTO_TCP, _TCP_NODELAY = 6, 1
_BACKLOG = 1024
_SECONDS = 5.0  # that a caller has for its proof
_PER_ADDRESS, _IN_ALL = 8, 256  # callers without a proof


def call_terms(port: int, token: bytes, node_variable: str, address_variable: str, addresses: list[str]) -> bytes:
    """The line that an agent reads behind its program.

    The variables, on its host, have the name of the node and the address of the launcher; `addresses` are tried next.
    """
    return " ".join((str(port), token.hex(), node_variable, address_variable, *addresses)).encode("ascii") + b"\n"


class _Unproved:
    """A connection without a proof."""

    def __init__(self, sock: socket, address: str, limit: Timer) -> None:
        self.sock = sock
        self.address = address
        self.limit = limit
        self.received = b""
        self.node = ""
        self.expected = ""  # its proof, once it has said its name


class CallListener:
    """Listens on all addresses, at a port that is free."""

    def __init__(self, loop: Loop, token: bytes, admit: Callable[[str, int], bool]) -> None:
        """`admit(node, fd)` takes the connection of the agent of a node, or refuses it, who has been proved."""
        self._loop = loop
        self._token = token
        self._admit = admit
        self._callers: list[_Unproved] = []
        self._sock = _listening()
        self.port: int = self._sock.getsockname()[1]
        loop.reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        """Listen no more.  May be called twice."""
        while self._callers:
            self._drop(self._callers[0])
        if self._sock.fileno() >= 0:
            self._loop.reader(self._sock.fileno(), None)
            self._sock.close()

    def _accept(self) -> None:
        try:
            fd, peer = self._sock._accept()  # type: ignore[attr-defined]
        except OSError:  # it has gone, or there are no descriptors: an agent calls again
            return
        sock = socket(fileno=fd)
        sock.setblocking(False)
        limit = self._loop.after(_SECONDS, lambda: self._drop(caller))
        caller = _Unproved(sock, peer[0], limit)
        same_host = [one for one in self._callers if one.address == caller.address]
        if len(same_host) >= _PER_ADDRESS:
            self._drop(same_host[0])
        elif len(self._callers) >= _IN_ALL:
            self._drop(self._callers[0])
        self._callers.append(caller)
        self._loop.reader(fd, partial(self._read, caller))

    def _drop(self, caller: _Unproved) -> None:
        self._forget(caller)
        caller.sock.close()

    def _forget(self, caller: _Unproved) -> None:
        caller.limit.cancel()
        self._callers.remove(caller)
        self._loop.reader(caller.sock.fileno(), None)

    def _read(self, caller: _Unproved) -> None:
        # an agent waits for our proof, but its first frame may follow its own proof at once, and is not for us
        most = len(caller.expected) + 1 - len(caller.received) if caller.expected else LONGEST
        try:
            piece = caller.sock.recv(most)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        caller.received += piece
        line, end, rest = caller.received.partition(b"\n")
        if not piece or rest or (not end and len(line) >= (len(caller.expected) or LONGEST) + 1):
            self._drop(caller)
        elif end:
            caller.received = b""
            self._answer(caller, line.decode("ascii", "replace"))

    def _answer(self, caller: _Unproved, line: str) -> None:
        if caller.expected:
            if same(line, caller.expected):
                self._hand_over(caller)
            else:
                self._drop(caller)
            return
        words = line.split(" ")
        if len(words) != 3 or words[0] != CALL:
            self._drop(caller)
            return
        _, theirs, caller.node = words
        ours = new_nonce()
        caller.expected = proof("agent", self._token, theirs, ours, caller.node)
        try:
            answer = f"{ours} {proof('launcher', self._token, theirs, ours, caller.node)}\n"
            caller.sock.send(answer.encode())
        except OSError:
            self._drop(caller)

    def _hand_over(self, caller: _Unproved) -> None:
        self._forget(caller)
        caller.sock.setsockopt(_IPPROTO_TCP, _TCP_NODELAY, 1)
        fd = caller.sock.detach()
        if not self._admit(caller.node, fd):
            os.close(fd)


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
