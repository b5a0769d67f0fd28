"""Free TCP ports of this host, chosen and held.

They are chosen below the range from which the kernel takes the ports of outgoing connections, so that no connection can
take one between our check and the bind of the program that gets it.
"""

from __future__ import annotations

import os
from errno import EADDRINUSE

from mslaunch.faststd import TYPE_CHECKING, socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Claim = Callable[[int], socket]  # raises OSError if another process of ours has one to this port

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_SOL_SOCKET, _SO_REUSEADDR = 1, 2
_FIRST_PORT = 10000
MOVES = 64  #: so many ports are tried from one that may move


class Listener:
    """A free port of this node, bound at all addresses, IPv4 and IPv6; nobody can connect before `listen`."""

    def __init__(self, port: int = 0, moves: bool = False, claim: Claim | None = None, address: str = "") -> None:
        """`port` 0: choose one; `moves`: one of those below it will do.  Raises OSError if all are taken.

        `claim` (`agent.port_claims`): other agents of ours regard it as taken until `close`, even after it was handed
        over.  `address` is the one at which it will listen; "": all.
        """
        tries = [port, *_below(port if moves else 0)] if port else list(_candidates())
        self.address = address
        self._claim: socket | None = None
        for number in tries:
            try:
                self._claim = claim(number) if claim and port else None
                self._sock = _bound(number)
                break
            except OSError:
                self._release()
                if number == tries[-1]:
                    raise
        self.port: int = self._sock.getsockname()[1]

    def listen(self) -> None:
        """Let others connect.  Raises OSError if another process listens at the port.

        From now on the port can be bound again after a connection was accepted there, by a program that sets
        SO_REUSEADDR, as servers do.
        """
        self._sock.setsockopt(_SOL_SOCKET, _SO_REUSEADDR, 1)
        if self.address:
            family = _AF_INET6 if ":" in self.address else _AF_INET
            every, self._sock = self._sock, _bound_at(family, (self.address, self.port))
            every.close()
            self._sock.setsockopt(_SOL_SOCKET, _SO_REUSEADDR, 1)
        self._sock.listen(64)
        self._sock.setblocking(False)

    def fileno(self) -> int:
        """Readable when somebody connects."""
        return self._sock.fileno()

    def hand_over(self) -> None:
        """Give the port to the next bind; connections that wait are reset at once."""
        self._sock.close()

    def close(self) -> None:
        """Give the port back."""
        self.hand_over()
        self._release()

    def _release(self) -> None:
        if self._claim:
            self._claim.close()
            self._claim = None

    def accept(self) -> socket:
        """The next connection; raises BlockingIOError without one."""
        return socket(fileno=self._sock._accept()[0])  # type: ignore[attr-defined]


def _below(port: int) -> Iterable[int]:
    """Those to which `port` may move: never privileged ones, even for root.

    Not those above it: there MindSpore's workers listen (2.10: rank R from 8118 + 256 R), those of other jobs too, and
    one of them could take the port between the end of our listening and the scheduler's bind.
    """
    return range(port - 1, max(port - MOVES, 1023), -1)


def _candidates() -> Iterable[int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            last = int(file.read().split()[0])
    except (OSError, ValueError):
        last = 32768
    first = _FIRST_PORT if last > _FIRST_PORT + 1000 else 1024
    for _ in range(64):
        yield first + int.from_bytes(os.urandom(4), "big") % max(last - first, 1)
    yield 0 if last <= 2048 else first


def _bound(port: int) -> socket:
    """Dual stack where the kernel has IPv6, else IPv4."""
    try:
        return _bound_at(_AF_INET6, ("::", port))
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise
    return _bound_at(_AF_INET, ("0.0.0.0", port))


def _bound_at(family: int, address: tuple[str, int]) -> socket:
    """A socket that keeps others from binding the port, as if it listened.

    socket(7): SO_REUSEADDR lets us bind where connections of an earlier job have not expired.  If it stayed set, others
    that set it could bind the port, too, as long as nobody listens.
    """
    sock = socket(family, _SOCK_STREAM)
    try:
        if family == _AF_INET6:
            sock.setsockopt(41, 26, 0)  # IPPROTO_IPV6, IPV6_V6ONLY
        sock.setsockopt(_SOL_SOCKET, _SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setsockopt(_SOL_SOCKET, _SO_REUSEADDR, 0)
    except OSError:
        sock.close()
        raise
    return sock
