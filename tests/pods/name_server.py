"""The name server of a cluster: names of pods once their services publish them, NXDOMAIN before (RFC 1035).

It is a thread of the test, with a socket in the network of a pod; each question is an event that a test may wait for.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence

_A, _IN = 1, 1
_ANSWER, _NO_SUCH_NAME = 0x8580, 3  # response, authoritative, recursion


class NameServer:
    """Answers on `sock` until it is closed; knows full names, as CoreDNS does."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._known: dict[str, str] = {}
        self._asked: Counter[tuple[str, bool]] = Counter()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def publish(self, addresses: dict[str, str]) -> None:
        """Only these names are known from now on."""
        with self._changed:
            self._known = dict(addresses)
            self._asked.clear()

    def wait_asked(self, names: Sequence[str], times: int, found: bool, bound: float = 30.0) -> None:
        """Until each of these names was asked for so often since `publish`, and was known or was not."""
        deadline = time.monotonic() + bound
        with self._changed:
            while any(self._asked[name, found] < times for name in names):
                assert self._changed.wait(deadline - time.monotonic()), f"only these were asked for: {self._asked}"

    def close(self) -> None:
        with contextlib.suppress(OSError):  # ENOTCONN, and it wakes the thread all the same
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._sock.close()

    def _serve(self) -> None:
        while True:
            try:
                question, peer = self._sock.recvfrom(512)
            except OSError:
                return
            if not question:  # it was shut down
                return
            self._sock.sendto(self._answer(question), peer)

    def _answer(self, message: bytes) -> bytes:
        labels, at = [], 12
        while message[at]:
            labels.append(message[at + 1 : at + 1 + message[at]].decode("ascii"))
            at += 1 + message[at]
        kind = struct.unpack_from("!H", message, at + 1)[0]
        name = ".".join(labels).lower()
        with self._changed:
            address = self._known.get(name, "")
            if kind == _A:
                self._asked[name, bool(address)] += 1
                self._changed.notify_all()
        found = address and kind == _A
        head = message[:2] + struct.pack("!5H", _ANSWER | (0 if address else _NO_SUCH_NAME), 1, int(bool(found)), 0, 0)
        answer = struct.pack("!3HIH", 0xC00C, _A, _IN, 0, 4) + socket.inet_aton(address) if found else b""
        return head + message[12 : at + 5] + answer
