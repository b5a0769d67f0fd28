"""The connection of two commands that know each other: lines of JSON, each of them one message.

They travel in records (`protocol.sealed_records`), so that nobody in between can change or repeat one.

caller  {"join": [HOST, RANKS, LEAST, MOST, RUN_ID, RESTARTS, NUMBER]}: NUMBER is null where hosts have none
host    {"refused": WHY}, or {"wait": HOSTS}: the job runs on so many, and goes on without this one until it is
        started again; or, when all have come, {"go": [NODE, [RANKS OF EACH NODE], PORT, ATTEMPT]}
either  {"failed": [HOST, WHY, CODE, ATTEMPT]}: this attempt is to end; ATTEMPT is 0 if no other may follow
        {"done": HOST}: its ranks have ended well
caller  {"ready": ATTEMPT}: its ranks of this attempt have ended, and it takes part in the next
host    {"over": HOST}: the ranks of all hosts have ended well
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.faststd import socket
    from mslaunch.protocol.sealed_records import Seals
    from mslaunch.runtime.loop import Loop

KIND = "meet-2"  #: what a caller says it is, with the version of these messages
_LONGEST = 1 << 16  # bytes of a line
_SOL_SOCKET, _SO_KEEPALIVE, _IPPROTO_TCP = 1, 9, 6
#: a host that is gone without a word is missed after 35 s: TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT of tcp(7)
_KEEPALIVE = ((4, 15), (5, 5), (6, 4))


class PeerLink:
    """One connection; `heard(link, kind, value)` gets messages, `ended(link)` is called once, when nothing follows."""

    def __init__(
        self,
        loop: Loop,
        sock: socket,
        seals: Seals,
        heard: Callable[[PeerLink, str, Any], None],
        ended: Callable[[PeerLink], None],
    ) -> None:
        self.host = ""  #: the name of the other host, once it is known
        self.changed = ""  #: why it was ended, if somebody in between has changed what the other command sent
        self._loop = loop
        self._sock = sock
        self._seals = seals
        self._heard = heard
        self._ended = ended
        self._received = b""
        sock.setblocking(False)
        sock.setsockopt(_SOL_SOCKET, _SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(_IPPROTO_TCP, option, value)
        loop.reader(sock.fileno(), self._read)

    def send(self, kind: str, value: Any) -> None:
        """A message; one that does not fit into the buffer of the system is lost with its connection."""
        import json

        line = json.dumps({kind: value}).encode() + b"\n"
        try:
            if self._sock.fileno() >= 0 and len(line) <= _LONGEST:
                record = b"".join(self._seals.sealer.seal(line))
                if self._sock.send(record) == len(record):
                    return
        except OSError:
            pass
        self._end()

    def close(self) -> None:
        """Nothing more is heard.  May be called twice."""
        if self._sock.fileno() >= 0:
            self._loop.reader(self._sock.fileno(), None)
            self._sock.close()

    def _end(self) -> None:
        if self._sock.fileno() >= 0:
            self.close()
            self._ended(self)

    def _read(self) -> None:
        try:
            piece = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        try:
            self._received += b"".join(self._seals.opener.feed(piece))
        except WireError as error:
            self.changed = error.what
            self._end()
            return
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._message(line)
        if not piece or len(self._received) > _LONGEST:
            self._end()

    def _message(self, line: bytes) -> None:
        import json

        try:
            ((kind, value),) = json.loads(line).items()
            if self._sock.fileno() >= 0:
                self._heard(self, kind, value)
        except (
            ValueError,
            TypeError,
            AttributeError,
            LookupError,
            ArithmeticError,
            RecursionError,
        ):  # it keeps to no protocol
            self._end()
