"""The addresses and ports of this node: which it has, which are free, which others can reach.

It knows nothing of frameworks.  Ports are chosen below the range from which the kernel takes the ports of outgoing
connections, so that no connection can take one between our check and the rank's bind; that is the surprising thing.
"""

from __future__ import annotations

import fcntl
import os
import struct

from mslaunch.lean import TYPE_CHECKING, socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mslaunch.wire.loop import Loop, Timer

_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM, _SOCK_DGRAM = 1, 2, 10, 1, 2
_SOL_SOCKET, _SO_REUSEADDR = 1, 2
_SIOCGIFCONF = 0x8912
_FIRST_PORT = 10000
MOVES = 64  #: so many ports are tried from one that may move
PROBE_SECONDS = 4.0  #: for all addresses together
_SETTLE = 0.3  #: seconds that other addresses have after the first answered


def addresses() -> list[str]:
    """The numeric addresses of this node's interfaces, loopback last; IPv6 without link-local ones."""
    found = _ipv4() + _ipv6()
    return sorted(dict.fromkeys(found), key=lambda address: address.startswith("127.") or address == "::1")


def _ipv4() -> list[str]:
    """netdevice(7), SIOCGIFCONF: 40 bytes an interface, the address at offset 20."""
    import array

    with _tcp(_AF_INET) as sock:
        room = array.array("B", bytes(40 * 256))
        asked = struct.pack("iL", len(room), room.buffer_info()[0])
        try:
            used = struct.unpack("iL", fcntl.ioctl(sock.fileno(), _SIOCGIFCONF, asked))[0]
        except OSError:
            return ["127.0.0.1"]
    return [".".join(map(str, room[at + 20 : at + 24])) for at in range(0, used, 40)]


def _ipv6() -> list[str]:
    """/proc/net/if_inet6: address, index, prefix length, scope (20 = link), flags, name."""
    try:
        with open("/proc/net/if_inet6") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    groups = [[line[0][at : at + 4].lstrip("0") or "0" for at in range(0, 32, 4)] for line in lines if line[3] != "20"]
    return [_shorten(group) for group in groups]


def _shorten(groups: list[str]) -> str:
    """RFC 5952: the first longest run of zero groups becomes "::"."""
    best, length, at = 0, 0, 0
    while at < 8:
        run = 0
        while at + run < 8 and groups[at + run] == "0":
            run += 1
        if run > length:
            best, length = at, run
        at += run or 1
    if length < 2:
        return ":".join(groups)
    return ":".join(groups[:best]) + "::" + ":".join(groups[best + length :])


class _tcp(socket):  # noqa: N801
    """A TCP socket that closes at the end of a `with`."""

    def __init__(self, family: int) -> None:
        super().__init__(family, _SOCK_STREAM)

    def __enter__(self) -> _tcp:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Listener:
    """A free port of this node, held by listening on it on every address, IPv4 and IPv6."""

    def __init__(self, port: int = 0, moves: bool = False, claim: bool = False) -> None:
        """`port` 0: choose one; `moves`: one of those below it is as good.  Raises OSError if all are taken.

        `claim`: it stays taken for other agents of ours until `close`, also once it was handed over.
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
        """Readable when somebody knocks."""
        return self._sock.fileno()

    def hand_over(self) -> None:
        """Give the port to who binds it now; whoever knocked is told so at once (a reset), and nothing lingers."""
        self._sock.close()

    def close(self) -> None:
        """Give the port back."""
        self.hand_over()
        self._release()

    def _release(self) -> None:
        if self._claim:
            self._claim.close()
            self._claim = None

    def accept(self) -> int:
        """The descriptor of the next connection; raises BlockingIOError without one."""
        fd: int = self._sock._accept()[0]  # type: ignore[attr-defined]
        return fd


def _claim(port: int) -> socket:
    """A name that only one process of this network can have: two jobs that choose from 8118 down must not meet there.

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
    last: OSError | None = None
    for family, anywhere in ((_AF_INET6, "::"), (_AF_INET, "0.0.0.0")):
        try:
            sock = _tcp(family)
        except OSError as error:
            last = error
            continue
        try:
            if family == _AF_INET6:
                sock.setsockopt(41, 26, 0)  # IPPROTO_IPV6, IPV6_V6ONLY
            sock.setsockopt(_SOL_SOCKET, _SO_REUSEADDR, 1)
            sock.bind((anywhere, port))
            sock.listen(64)
            sock.setblocking(False)
            return sock
        except OSError as error:
            sock.close()
            last = error
            if error.errno == 98:  # EADDRINUSE is an answer
                raise
    assert last is not None
    raise last


class Door:
    """Proves to the other agents that an address is this node's: who connects hears `token`."""

    def __init__(self, loop: Loop) -> None:
        self.token = os.urandom(8).hex()
        self._loop = loop
        self._listener: Listener | None = Listener()
        self.port = self._listener.port
        loop.reader(self._listener.fileno(), self._knocked)

    def _knocked(self) -> None:
        assert self._listener is not None
        try:
            fd = self._listener.accept()
        except OSError:
            return
        visitor = socket(fileno=fd)
        try:
            visitor.send(self.token.encode())
        except OSError:
            pass
        visitor.close()

    def close(self) -> None:
        """No more proofs are needed."""
        if self._listener:
            self._loop.reader(self._listener.fileno(), None)
            self._listener.close()
            self._listener = None


class Prober:
    """Tries addresses of another node, all at once, and reports those where `token` was heard."""

    def __init__(
        self, loop: Loop, addresses: Iterable[str], port: int, token: str, done: Callable[[list[str]], None]
    ) -> None:
        self._loop = loop
        self._token = token.encode()
        self._done = done
        self._open: dict[str, socket] = {}
        self._reached: list[str] = []
        self._timer: Timer | None = loop.after(PROBE_SECONDS, self._finish)
        for address in addresses:
            self._try(address, port)
        if not self._open:
            self._finish()

    def _try(self, address: str, port: int) -> None:
        try:
            sock = _tcp(_AF_INET6 if ":" in address else _AF_INET)
        except OSError:
            return
        sock.setblocking(False)
        try:
            sock.connect((address, port))
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
            return
        self._open[address] = sock
        self._loop.reader(sock.fileno(), lambda: self._heard(address))

    def _heard(self, address: str) -> None:
        sock = self._open[address]
        try:
            said = sock.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._close(address)
        if said == self._token:
            if not self._reached and self._timer:
                self._timer.cancel()
                self._timer = self._loop.after(_SETTLE, self._finish)
            self._reached.append(address)
        if not self._open:
            self._finish()

    def _close(self, address: str) -> None:
        sock = self._open.pop(address)
        self._loop.reader(sock.fileno(), None)
        sock.close()

    def _finish(self) -> None:
        for address in list(self._open):
            self._close(address)
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._done(self._reached)
