"""Free TCP ports of this host, chosen and held.

They are chosen below the range from which the kernel takes the ports of outgoing connections, so that no connection can
take one between our check and the bind of the program that gets it.
"""

from __future__ import annotations

import os
from errno import EADDRINUSE

from mslaunch.faststd import TYPE_CHECKING, socket

if TYPE_CHECKING:
    from collections.abc import Iterable

_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM, _SOCK_DGRAM = 1, 2, 10, 1, 2
_SOL_SOCKET, _SO_REUSEADDR = 1, 2
_FIRST_PORT = 10000
MOVES = 64  #: so many ports are tried from one that may move


class Listener:
    """A free port of this node, held by listening on it on every address, IPv4 and IPv6."""

    def __init__(self, port: int = 0, moves: bool = False, claim: bool = False) -> None:
        """`port` 0: choose one; `moves`: one of those below it will do.  Raises OSError if all are taken.

        `claim`: other agents of ours regard it as taken until `close`, even after it was handed over.
        """
        tries = [port, *_below(port if moves else 0)] if port else list(_candidates())
        self._claim: socket | None = None
        for number in tries:
            try:
                self._claim = _claim(number) if claim and port else None
                self._sock = _listen(number)
                break
            except OSError:
                self._release()
                if number == tries[-1]:
                    raise
        self.port: int = self._sock.getsockname()[1]

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


def _claim(port: int) -> socket:
    """A name that only one process of this network can have: two jobs that choose from 8118 down take different ones.

    A port is given up 0.3 s before the scheduler takes it.  unix(7): an abstract name is gone with its socket.
    """
    sock = socket(_AF_UNIX, _SOCK_DGRAM)
    try:
        sock.bind(f"\0mslaunch port {port}")
    except OSError:
        sock.close()
        raise
    return sock


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


def _listen(port: int) -> socket:
    """Dual stack where the kernel has IPv6, else IPv4."""
    try:
        return _listen_at(_AF_INET6, ("::", port))
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise
    return _listen_at(_AF_INET, ("0.0.0.0", port))


def _listen_at(family: int, address: tuple[str, int]) -> socket:
    sock = socket(family, _SOCK_STREAM)
    try:
        if family == _AF_INET6:
            sock.setsockopt(41, 26, 0)  # IPPROTO_IPV6, IPV6_V6ONLY
        sock.setsockopt(_SOL_SOCKET, _SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(64)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
