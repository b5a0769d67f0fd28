"""Links without descriptors, for more hosts than a process may have descriptors: all on one socket.

The launcher's modules get another `os` and another `Poller`, which serve numbers from FIRST on from here, and all other
descriptors as ever.  So the code of the launcher is the real one, and what is left out is the kernel's part: a read, a
write and an epoll_ctl for each link, and the memory of a socketpair.  No write ever has to wait.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from mslaunch.launcher.agents import connection
from mslaunch.runtime import fd_writer, loop
from mslaunch.transport import base

FIRST = 1 << 24
_HEADER = struct.Struct("!BII")  # what, number of the link, bytes that follow
DATA, CALL, CLOSE, TOLD = range(4)
_MOST = 1023  # descriptors that are ready at a time, as epoll has it
_CHUNK = 1 << 20


class Stream:
    """One end of the socket: records both ways, neither of which waits."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setblocking(False)
        self._out = bytearray()
        self._in = bytearray()
        self.ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def pending(self) -> bool:
        return bool(self._out)

    def put(self, what: int, number: int, data: bytes = b"") -> None:
        self._out += _HEADER.pack(what, number, len(data))
        self._out += data

    def flush(self) -> None:
        """Write what can be written."""
        while self._out and not self.ended:
            try:
                with memoryview(self._out) as view:
                    size = self._socket.send(view[:_CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self.ended = True
                return
            del self._out[:size]

    def records(self) -> Iterator[tuple[int, int, bytes]]:
        """What has come."""
        try:
            data = self._socket.recv(_CHUNK)
            self.ended = self.ended or not data
        except BlockingIOError:
            return
        except OSError:
            self.ended = True
            return
        self._in += data
        at = 0
        while len(self._in) - at >= _HEADER.size:
            what, number, size = _HEADER.unpack_from(self._in, at)
            end = at + _HEADER.size + size
            if end > len(self._in):
                break
            yield what, number, bytes(self._in[at + _HEADER.size : end])
            at = end
        del self._in[:at]


class OneStream:
    """The launcher's end: links by their numbers."""

    def __init__(self, end: socket.socket) -> None:
        self.stream = Stream(end)
        self._next = FIRST
        self._boxes: dict[int, bytearray] = {}
        self._ended: set[int] = set()
        self._watched: dict[int, int] = {}
        self._ready: dict[int, None] = {}
        self._told: list[str] = []
        self.on_message: Callable[[str], None] = lambda text: None
        for module in (connection, fd_writer, base):
            module.os = _Calls(self)  # type: ignore[attr-defined]
        loop.Poller = lambda: _Poller(self)  # type: ignore[misc, assignment]

    def open(self) -> int:
        self._next += 1
        self._boxes[self._next] = bytearray()
        return self._next

    def call(self, number: int, index: int) -> None:
        self.stream.put(CALL, number, b"%d" % index)

    # --- as descriptors

    def read(self, number: int, size: int) -> bytes:
        box = self._boxes[number]
        if not box and number not in self._ended:
            raise BlockingIOError
        data = bytes(box[:size])
        del box[:size]
        if not box and number not in self._ended:
            self._ready.pop(number, None)
        return data

    def write(self, number: int, data: bytes) -> int:
        if number in self._ended:
            raise BrokenPipeError
        self.stream.put(DATA, number, data)
        return len(data)

    def close(self, number: int) -> None:
        if self._boxes.pop(number, None) is not None:
            self.stream.put(CLOSE, number)
        self.watch(number, 0)

    def watch(self, number: int, events: int) -> None:
        if not events & select.EPOLLIN:
            self._watched.pop(number, None)
            self._ready.pop(number, None)
            return
        self._watched[number] = events
        if self._boxes.get(number) or number in self._ended:
            self._ready[number] = None

    # --- what comes

    def receive(self) -> None:
        for what, number, data in self.stream.records():
            if what == TOLD:
                self._told.append(data.decode())
            elif number in self._boxes:
                self._boxes[number] += data
                if what == CLOSE:
                    self._ended.add(number)
                if number in self._watched:
                    self._ready[number] = None

    def ready(self) -> list[tuple[int, int]]:
        """Links that can be read; when there are none, messages that came behind what they had are handed on."""
        while self._told and not self._ready:
            self.on_message(self._told.pop(0))
        return [(number, select.EPOLLIN) for number, _ in zip(self._ready, range(_MOST))]


class _Calls:
    """`os` for the launcher's modules."""

    def __init__(self, links: OneStream) -> None:
        self._links = links

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size) if fd < FIRST else self._links.read(fd, size)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data) if fd < FIRST else self._links.write(fd, data)

    def writev(self, fd: int, pieces: list[bytes]) -> int:
        return os.writev(fd, pieces) if fd < FIRST else self._links.write(fd, b"".join(pieces))

    def set_blocking(self, fd: int, on: bool) -> None:
        if fd < FIRST:
            os.set_blocking(fd, on)

    def close(self, fd: int) -> None:
        if fd < FIRST:
            os.close(fd)
        else:
            self._links.close(fd)


class _Poller(loop.Poller):
    """Waits for descriptors, and for links on the one socket."""

    def __init__(self, links: OneStream) -> None:
        super().__init__()
        self._links = links
        self._fd = links.stream.fileno()
        super().watch(self._fd, select.EPOLLIN)

    def watch(self, fd: int, events: int) -> None:
        if fd < FIRST:
            super().watch(fd, events)
        else:
            self._links.watch(fd, events)

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        links = self._links
        links.stream.flush()
        super().watch(self._fd, select.EPOLLIN | select.EPOLLOUT * links.stream.pending)
        found = links.ready()
        real = super().wait(0.0 if found else seconds)
        if any(fd == self._fd for fd, _ in real):
            links.receive()
            links.stream.flush()
        return [*(pair for pair in real if pair[0] != self._fd), *found]
