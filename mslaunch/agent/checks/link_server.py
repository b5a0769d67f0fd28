"""The end of a measurement that listens: for --check, each host lets the others connect, and answers them.

A caller and this agent prove to each other that they know the token, which neither of them sends
(`protocol.address_proof`).  Then `p` is answered by `p`, a block of data that begins with `d` by nothing, and `e` by
`e`.  Time, bytes and the number of connections are bounded; a caller without a proof keeps nobody out.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.free_ports import Listener
from mslaunch.host.own_addresses import bare_address
from mslaunch.protocol import address_proof
from mslaunch.protocol.check_messages import Listening
from mslaunch.protocol.keyed_digest import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.faststd import socket
    from mslaunch.runtime.loop import Loop

BLOCK = 1 << 16  #: bytes of a block of data, its first letter included
_MOST_BYTES = 64 << 20  # of a connection
_SECONDS = 8.0  # of a connection
_PROOF = 2.0  # of a connection without a proof: the other end gives up sooner
_AT_ONCE = 32  # connections with a proof; and others, of which the oldest is closed when one more comes


class LinkServer:
    """Listens until the agent ends."""

    def __init__(self, loop: Loop) -> None:
        """Raises OSError if there is no free port, or no descriptor for one."""
        self._loop = loop
        self._listener = Listener()
        self._listener.listen()
        self.listening = Listening(self._listener.port, address_proof.new_secret())
        self._strangers: dict[_MeasuringPeer, None] = {}  # without a proof, in the order of coming
        self._proved: set[_MeasuringPeer] = set()
        loop.reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            client = self._listener.accept()
        except OSError:
            return
        if len(self._strangers) >= _AT_ONCE:
            next(iter(self._strangers)).close()
        client.setblocking(False)
        peer = _MeasuringPeer(self._loop, client, self.listening.token, self._admit, self._closed)
        self._strangers[peer] = None

    def _admit(self, peer: _MeasuringPeer) -> bool:
        """It has proved that it knows the token: whether there is room for it."""
        if len(self._proved) >= _AT_ONCE:
            return False
        del self._strangers[peer]
        self._proved.add(peer)
        return True

    def _closed(self, peer: _MeasuringPeer) -> None:
        self._strangers.pop(peer, None)
        self._proved.discard(peer)


class _MeasuringPeer:
    """One connection, from its nonce to its end."""

    def __init__(
        self,
        loop: Loop,
        client: socket,
        token: str,
        admit: Callable[[_MeasuringPeer], bool],
        closed: Callable[[_MeasuringPeer], None],
    ) -> None:
        self._loop = loop
        self._client = client
        self._token = token
        self._admit, self._closed = admit, closed
        self._wanted = ""  # the proof of the caller, once we have proved ourselves
        self._proved = False
        self._begun = b""  # of a nonce or a proof
        self._missing = 0  # bytes of a block
        self._bytes = 0
        self._timer = loop.after(_PROOF, self.close)
        loop.reader(client.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = self._client.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._bytes += len(data)
        if not data or self._bytes > _MOST_BYTES or not self._take(data):
            self.close()

    def _take(self, data: bytes) -> bool:
        """Whether the connection goes on."""
        if self._proved:
            return self._echo(data)
        self._begun += data
        if len(self._begun) < address_proof.NONCE:
            return True
        word, rest = self._begun[: address_proof.NONCE], self._begun[address_proof.NONCE :]
        if not self._wanted:
            self._begun = b""
            return not rest and self._prove(word)
        if not same(word.decode("ascii", "replace"), self._wanted) or not self._admit(self):
            return False
        self._proved = True
        self._timer.cancel()
        self._timer = self._loop.after(_SECONDS, self.close)
        return self._echo(rest)

    def _prove(self, nonce: bytes) -> bool:
        """Answer a nonce of the caller, and ask for a proof by one of ours."""
        try:
            address = bare_address(self._client.getsockname()[0])
        except OSError:  # it was reset
            return False
        own = address_proof.new_secret()
        self._wanted = address_proof.caller_proof(self._token, nonce.decode("ascii", "replace"), own, address)
        return self._say(address_proof.answer(self._token, nonce, address) + own.encode() + b"\n")

    def _echo(self, data: bytes) -> bool:
        answer, at = b"", 0
        while at < len(data):
            skipped = min(self._missing, len(data) - at)
            at += skipped
            self._missing -= skipped
            if at >= len(data):
                break
            letter = data[at : at + 1]
            at += 1
            if letter == b"d":
                self._missing = BLOCK - 1
            elif letter in (b"p", b"e") and len(answer) < 100:
                answer += letter
            else:
                return False
        return self._say(answer)

    def _say(self, answer: bytes) -> bool:
        try:
            return not answer or self._client.send(answer) == len(answer)  # a few bytes, which always find room
        except OSError:
            return False

    def close(self) -> None:
        """Hang up."""
        self._timer.cancel()
        self._loop.reader(self._client.fileno(), None)
        self._client.close()
        self._closed(self)
