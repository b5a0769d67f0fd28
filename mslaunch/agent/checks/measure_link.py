"""A measurement of the way to another host: delay there and back, rate, and what TCP had to send again.

The agent waits for it, LINK_SECONDS at most: a loop in between would be part of what is measured.
"""

from __future__ import annotations

import select
import time
from errno import EINPROGRESS

from mslaunch.agent.checks.link_server import BLOCK
from mslaunch.faststd import TYPE_CHECKING, socket, struct
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


def measure(question: LinkQuestion) -> LinkFacts:
    """Connect to the first address that proves to be the other host's, and measure."""
    deadline = time.monotonic() + LINK_SECONDS
    sock, address = _connect(question)
    if sock is None:
        return LinkFacts(address)
    try:
        sock.setsockopt(_TCP, _NODELAY, 1)
        seconds = min(question.seconds, 1.0)
        delay = _delay(sock, seconds / 2, deadline)
        rate = _rate(sock, seconds, deadline)
        return LinkFacts("", address, delay, rate, *_segments(sock))
    except (OSError, _NoAnswerError) as error:
        why = error.args[0] if isinstance(error, _NoAnswerError) else error.strerror or _LATE
        return LinkFacts(f"the connection to {address} broke: {why}"[:200], address)
    finally:
        sock.close()


def _connect(question: LinkQuestion) -> tuple[socket | None, str]:
    """A connection and its address; None and the reason, if no address is the other host's.

    All are tried at once: one may lead nowhere, or to this very host, as that of a bridge for containers.
    """
    token, proof = question.token.encode(), question.proof.encode()
    opened: dict[int, tuple[socket, str, bool]] = {}  # by descriptor; whether the token was sent
    poll = select.poll()
    reasons: dict[str, str] = {}
    for address in question.addresses[:_ADDRESSES]:
        sock = _begin(address, question.port, reasons)
        if sock:
            opened[sock.fileno()] = (sock, address, False)
            poll.register(sock.fileno(), select.POLLOUT)
    found: tuple[socket | None, str] = (None, "")
    deadline = time.monotonic() + _CONNECT
    while opened and not found[0] and (left := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            sock, address, sent = opened[fd]
            try:
                if not sent:
                    sock.send(token)
                    opened[fd] = (sock, address, True)
                    poll.modify(fd, select.POLLIN)
                    continue
                right = sock.recv(len(proof)) == proof
            except OSError as error:
                reasons[address], right = error.strerror or "no answer", False
            poll.unregister(fd)
            del opened[fd]
            if right:
                found = sock, address
                break
            reasons.setdefault(address, "another program answered")
            sock.close()
    for sock, address, _ in opened.values():
        reasons.setdefault(address, "no answer")
        sock.close()
    return found if found[0] else (None, _why(question.addresses, reasons))


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
