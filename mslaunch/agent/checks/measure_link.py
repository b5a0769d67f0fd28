"""A measurement of the way to another host: delay there and back, rate, and what TCP had to send again.

The agent waits for it, LINK_SECONDS at most: a loop in between would be part of what is measured.
"""

from __future__ import annotations

import os
import select
import time
from errno import EINPROGRESS

from mslaunch.agent.checks.link_server import BLOCK
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, socket, struct
from mslaunch.host.connection_owners import owner
from mslaunch.host.own_addresses import bare_address, is_loopback, leads_back
from mslaunch.protocol import address_proof
from mslaunch.protocol.check_messages import LINK_SECONDS, LinkFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.protocol.check_messages import LinkQuestion

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_TCP, _NODELAY, _TCP_INFO = 6, 1, 11
_CONNECT = 1.6  # seconds: a first packet that is lost is sent again after one
_ANSWER = 1.5  # seconds for each answer
_PINGS = (3, 300)  # at least, and at most
_MOST_BYTES = 8 << 20
_SOL_SOCKET, _SO_SNDBUF, _BUFFER = 1, 7, 1 << 18  # a slow link would be busy for long with what a large buffer holds
_ADDRESSES = 16
_LATE = "it answers too late"


class _NoAnswerError(Exception):
    """What is told of a link that could not be measured."""


class _ProvedLink(NamedTuple):
    """A connection to the other host."""

    sock: socket
    address: str  # that was dialled
    proof: str  # ours, which is still to be sent
    direct: bool  # the other host has that address, and no translation is in between


def measure(question: LinkQuestion) -> LinkFacts:
    """Connect to the first address that proves to be the other host's, and measure."""
    deadline = time.monotonic() + LINK_SECONDS
    link, why = _LinkSearch(question).find()
    if link is None:
        return LinkFacts(why)
    sock, address = link.sock, link.address
    try:
        sock.setsockopt(_TCP, _NODELAY, 1)
        _bound(sock, deadline)
        sock.sendall(link.proof.encode())
        seconds = min(question.seconds, 1.0)
        delay = _delay(sock, seconds / 2, deadline)
        rate = _rate(sock, seconds, deadline)
        return LinkFacts("", address, delay, rate, *_segments(sock))
    except (OSError, _NoAnswerError) as error:
        why = error.args[0] if isinstance(error, _NoAnswerError) else error.strerror or _LATE
        return LinkFacts(f"the connection to {address} broke: {why}"[:200], address)
    finally:
        sock.close()


class _LinkSearch:
    """The search for a connection to the other host.

    All its addresses are tried at once: one may lead nowhere, or to this very host, as that of a bridge for containers.
    An address behind translation counts if no other proves itself in time.
    """

    def __init__(self, question: LinkQuestion) -> None:
        self._question = question
        self._nonce = address_proof.new_secret()
        self._opened: dict[int, tuple[socket, str]] = {}  # by descriptor
        self._asked: set[int] = set()  # those that have got our nonce
        self._poll = select.poll()
        self._reasons: dict[str, str] = {}
        self._found: _ProvedLink | None = None

    def find(self) -> tuple[_ProvedLink | None, str]:
        """A connection, and ""; None and the reason, if no address is the other host's."""
        for address in dict.fromkeys(self._question.addresses[:_ADDRESSES]):
            sock = _begin(address, self._question.port, self._reasons)
            if sock:
                self._opened[sock.fileno()] = (sock, address)
                self._poll.register(sock.fileno(), select.POLLOUT)
        deadline = time.monotonic() + _CONNECT
        while self._opened and not (self._found and self._found.direct) and (left := deadline - time.monotonic()) > 0:
            for fd, _ in self._poll.poll(left * 1000):
                self._ready(fd)
        for sock, address in self._opened.values():
            self._reasons.setdefault(address, "no answer")
            sock.close()
        return self._found, "" if self._found else _why(self._question.addresses, self._reasons)

    def _ready(self, fd: int) -> None:
        sock, address = self._opened[fd]
        link = None
        try:
            if fd not in self._asked:
                sock.send(self._nonce.encode())
                self._asked.add(fd)
                self._poll.modify(fd, select.POLLIN)
                return
            link = _proved_link(sock, address, self._question.token, self._nonce)
        except OSError as error:
            self._reasons[address] = error.strerror or "no answer"
        self._poll.unregister(fd)
        del self._opened[fd]
        if link is None:
            self._reasons.setdefault(address, "another program answered")
            sock.close()
        elif self._found is None:
            self._found = link
        elif self._found.direct or not link.direct:
            sock.close()
        else:
            self._found.sock.close()
            self._found = link


def _proved_link(sock: socket, address: str, token: str, nonce: str) -> _ProvedLink | None:
    """The connection, if its other end has proved itself.  Raises OSError."""
    said, _, theirs = sock.recv(address_proof.LONGEST).partition(b"\n")
    proved = address_proof.proved_address(token, nonce, said)
    back = is_loopback(address) or leads_back(sock)
    if not proved or (back and owner(sock.fileno()) != os.geteuid()):
        return None
    mine = address_proof.caller_proof(token, nonce, theirs.decode("ascii", "replace").rstrip("\n"), proved)
    return _ProvedLink(sock, address, mine, proved == bare_address(sock.getpeername()[0]))


def _begin(address: str, port: int, reasons: dict[str, str]) -> socket | None:
    try:
        sock = socket(_AF_INET6 if ":" in address else _AF_INET, _SOCK_STREAM)
    except OSError as error:
        reasons[address] = error.strerror or ""
        return None
    sock.setblocking(False)
    sock.setsockopt(_SOL_SOCKET, _SO_SNDBUF, _BUFFER)
    try:
        refused = sock.connect_ex((address, port))
    except OSError:  # no address at all
        refused = 22
    if refused not in (0, EINPROGRESS):
        reasons[address] = "there is no way to it"
        sock.close()
        return None
    return sock


def _why(addresses: Sequence[str], reasons: dict[str, str]) -> str:
    """`10.0.0.3: no answer`, for the most likely address."""
    shown = [f"{address}: {reasons.get(address, 'no answer')}" for address in addresses[:1]]
    return "".join(shown)[:200] or "it has no address"


def _bound(sock: socket, deadline: float) -> None:
    """Let the next call take no longer than an answer may take, and not beyond the end of the measurement."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise _NoAnswerError(_LATE)
    sock.settimeout(min(_ANSWER, left))


def _delay(sock: socket, seconds: float, deadline: float) -> float:
    """The least of all in so many seconds: a busy host may answer none of the first ones at once."""
    least, most = _PINGS
    began, best = time.monotonic(), 1e9
    for number in range(most):
        _bound(sock, deadline)
        asked = time.monotonic()
        sock.sendall(b"p")
        if sock.recv(1) != b"p":
            raise _NoAnswerError("it ended")
        best = min(best, time.monotonic() - asked)
        if number + 1 >= least and time.monotonic() - began > seconds:
            break
    return best


def _rate(sock: socket, seconds: float, deadline: float) -> float:
    """Bytes a second, from the first block to the answer that all have come."""
    block = b"d" + bytes(BLOCK - 1)
    began, sent = time.monotonic(), 0
    while sent < _MOST_BYTES and time.monotonic() - began < seconds:
        _bound(sock, deadline)
        sock.sendall(block)
        sent += BLOCK
    _bound(sock, deadline)
    sock.sendall(b"e")
    if sock.recv(1) != b"e":
        raise _NoAnswerError("it ended")
    return sent / max(time.monotonic() - began, 1e-6)


def _segments(sock: socket) -> tuple[int, int]:
    """How many segments were sent, and how many of them again: tcp_info of Linux 4.2 and later; 0, 0 elsewhere."""
    try:
        info = sock.getsockopt(_TCP, _TCP_INFO, 144)
        (again,), (sent,) = struct.unpack_from("=I", info, 100), struct.unpack_from("=I", info, 136)
    except (OSError, struct.error):
        return 0, 0
    return sent, again
