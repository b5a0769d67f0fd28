"""Callers who must prove that they know a token: those of one listening socket.

Whoever connects has five seconds for the proof (`protocol.call_proof`), and learns nothing before.  Of one address
eight connections at most may be without a proof, the newest ones, and 256 in all, so that a flood from one host does
not keep others out.  A connection is read once more before it is cut off, and whoever is cut off calls again: also
after its proof, as long as it has heard nothing, since the proof may have been on its way.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, partial, socket
from mslaunch.protocol.call_proof import CALL, CALLER, HOST, LONGEST, CallWords, new_nonce, proof, seals
from mslaunch.protocol.keyed_digest import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.protocol.sealed_records import Seals
    from mslaunch.runtime.loop import Loop, Timer

_IPPROTO_TCP, _TCP_NODELAY = 6, 1
_SECONDS = 5.0  # that a caller has for its proof
_PER_ADDRESS, _IN_ALL = 8, 256  # callers without a proof


class _Unproved:
    """A connection without a proof."""

    def __init__(self, sock: socket, address: str, limit: Timer) -> None:
        self.sock = sock
        self.address = address
        self.limit = limit
        self.received = b""
        self.call: CallWords | None = None  # once it has said its name
        self.expected = ""  # its proof


class ProvedCallers:
    """Accepts connections, and hands over those with a proof."""

    def __init__(
        self,
        loop: Loop,
        token: Callable[[str], bytes],
        sock: socket,
        admit: Callable[[str, str, socket, Seals], None],
        place: Callable[[socket], str],
        refused: Callable[[str, bool], None] = lambda address, ours: None,
    ) -> None:
        """`sock` listens.  `token(name)` is what a caller of this name has to know.

        `admit(name, kind, connection, seals)` gets what a caller has said of itself, and proved.

        `place(connection)`: where it was called, in a word that the proofs name (`call_proof`).
        `refused(address, ours)` hears of the others; `ours`: it knows the protocol, but not the token.
        """
        self._loop = loop
        self._token = token
        self._sock = sock
        self._admit = admit
        self._place = place
        self._refused = refused
        self.waiting: list[_Unproved] = []  #: connections without a proof
        loop.reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Listen no more.  May be called twice."""
        while self.waiting:
            self._drop(self.waiting[0])
        if self._sock.fileno() >= 0:
            self._loop.reader(self._sock.fileno(), None)
            self._sock.close()

    def _accept(self) -> None:
        try:
            fd, peer = self._sock._accept()  # type: ignore[attr-defined]
        except OSError:  # it has gone, or there are no descriptors: it calls again
            return
        sock = socket(fileno=fd)
        sock.setblocking(False)
        self._make_room(peer[0])
        if self._sock.fileno() < 0:  # whoever made room was the last to be waited for
            sock.close()
            return
        limit = self._loop.after(_SECONDS, lambda: self._cut_off(caller))
        caller = _Unproved(sock, peer[0], limit)
        self.waiting.append(caller)
        self._loop.reader(fd, partial(self._read, caller))

    def _make_room(self, address: str) -> None:
        same_host = [one for one in self.waiting if one.address == address]
        if len(same_host) >= _PER_ADDRESS:
            self._cut_off(same_host[0])
        elif len(self.waiting) >= _IN_ALL:
            self._cut_off(self.waiting[0])

    def _cut_off(self, caller: _Unproved) -> None:
        """Drop a caller, unless its proof is there already."""
        self._read(caller)
        if caller in self.waiting:
            self._drop(caller)

    def _refuse(self, caller: _Unproved, ours: bool) -> None:
        self._drop(caller)
        self._refused(caller.address, ours)

    def _drop(self, caller: _Unproved) -> None:
        self._forget(caller)
        caller.sock.close()

    def _forget(self, caller: _Unproved) -> None:
        caller.limit.cancel()
        self.waiting.remove(caller)
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
            self._refuse(caller, bool(caller.expected))
        elif end:
            caller.received = b""
            self._answer(caller, line.decode("ascii", "replace"))

    def _answer(self, caller: _Unproved, line: str) -> None:
        if caller.call:
            if same(line, caller.expected):
                self._hand_over(caller, caller.call)
            else:
                self._refuse(caller, True)
            return
        words = line.split(" ")
        if len(words) != 4 or words[0] != CALL:
            self._refuse(caller, False)
            return
        _, theirs, name, kind = words
        token = self._token(name)
        try:
            call = caller.call = CallWords(theirs, new_nonce(), name, kind, self._place(caller.sock))
            caller.expected = proof(CALLER, token, call)
            caller.sock.send(f"{call.host_nonce} {call.place} {proof(HOST, token, call)}\n".encode())
        except OSError:
            self._drop(caller)

    def _hand_over(self, caller: _Unproved, call: CallWords) -> None:
        self._forget(caller)
        caller.sock.setsockopt(_IPPROTO_TCP, _TCP_NODELAY, 1)
        self._admit(call.name, call.kind, caller.sock, seals(HOST, self._token(call.name), call))
