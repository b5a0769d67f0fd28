"""A relay between one that calls and one that listens (`protocol.call_proof`): it passes on all, or changes something.

It knows the format of what it passes on, lines and then records, and no secret.  As a program, for another user or
host, `relay.py PORT ADDRESS TO_PORT TO_ADDRESS` passes on until it is ended; only the standard library is needed.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from itertools import count

DOWN, UP = "down", "up"  # to the caller, and to the host
LINES = {DOWN: 1, UP: 2}  # of the proofs, before records begin
#: (direction, number of the record, its bytes with the head) -> what is passed on instead; None ends the connection
Alter = Callable[[str, int, bytes], "list[tuple[str, bytes]] | None"]


def pass_on(direction: str, number: int, record: bytes) -> list[tuple[str, bytes]]:
    """As it came."""
    return [(direction, record)]


class Relay:
    """Listens at `at`, and calls `to` for each that calls; `alter` gets each record."""

    def __init__(self, at: tuple[str, int], to: tuple[str, int], alter: Alter = pass_on) -> None:
        self._to = to
        self._alter = alter
        self._server = socket.create_server(at, backlog=64)
        self.port: int = self._server.getsockname()[1]
        self.calls = 0
        self.records = {DOWN: 0, UP: 0}  # of all calls
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(30)

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            self.calls += 1
            try:
                host = socket.create_connection(self._to, 30)
            except OSError:
                caller.close()
                continue
            host.settimeout(None)
            ends = {DOWN: caller, UP: host}
            left = [DOWN, UP]  # directions that are open
            for direction in LINES:
                self._threads.append(threading.Thread(target=self._pass, args=(direction, ends, left), daemon=True))
                self._threads[-1].start()

    def _pass(self, direction: str, ends: dict[str, socket.socket], left: list[str]) -> None:
        source = ends[UP if direction == DOWN else DOWN]
        try:
            for _ in range(LINES[direction]):
                ends[direction].sendall(_line(source))
            self._pass_records(direction, source, ends)
        except OSError:
            pass
        left.remove(direction)
        for end in ends.values() if not left else [ends[direction]]:
            try:
                end.shutdown(socket.SHUT_RDWR if not left else socket.SHUT_WR)
            except OSError:
                pass
            if not left:
                end.close()

    def _pass_records(self, direction: str, source: socket.socket, ends: dict[str, socket.socket]) -> None:
        for number in count():
            record = _record(source)
            passed = self._alter(direction, number, record)
            self.records[direction] += 1
            if passed is None:
                for end in ends.values():
                    end.shutdown(socket.SHUT_RDWR)
                return
            for way, data in passed:
                ends[way].sendall(data)


def _line(source: socket.socket) -> bytes:
    text = b""
    while not text.endswith(b"\n"):
        text += _some(source, 1)
    return text


def _record(source: socket.socket) -> bytes:
    head = _whole(source, 20)
    return head + _whole(source, int.from_bytes(head[:4], "big"))


def _whole(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += _some(source, size - len(data))
    return data


def _some(source: socket.socket, size: int) -> bytes:
    data = source.recv(size)
    if not data:
        raise ConnectionError("the end")
    return data


if __name__ == "__main__":
    Relay((sys.argv[2], int(sys.argv[1])), (sys.argv[4], int(sys.argv[3])))
    print("listens", flush=True)
    threading.Event().wait()
