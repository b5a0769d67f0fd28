"""The socket on which one rank may speak PMI: descriptor 3 of the rank, which no process but its children has.

A rank may have dropped our rights and kept the socket, so the kernel is asked for the user of each writer.
"""

from __future__ import annotations

import os
import sys

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.runtime.fd_reader import FdReader
from mslaunch.runtime.fd_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop

_AF_UNIX, _SOCK_STREAM = 1, 1
_SOL_SOCKET, _SO_PASSCRED, _SCM_CREDENTIALS = 1, 16, 2  # unix(7); three numbers of 32 bits: process, user, group
_ROOM = 32  # CMSG_SPACE(12): with the credentials in it there is none for descriptors, which the kernel then closes
_MSG_CTRUNC, _MSG_CMSG_CLOEXEC = 0x8, 0x40000000  # recvmsg(2); the first says that descriptors were sent
_UNREAD = 1 << 24  #: bytes of replies that a rank may leave unread; nothing else bounds them


class PmiSocket:
    """Our end of the socket, and the rank's, `child`, until that has been started."""

    def __init__(self, loop: Loop, rank: int, received: Callable[[int, bytes], bool]) -> None:
        """`received` gets what the rank sends, and b"" at the end; False: it cannot be taken before `resume`.

        Raises OSError if there is no descriptor left.
        """
        import _socket

        ours, child = _socket.socketpair(_AF_UNIX, _SOCK_STREAM)
        ours.setsockopt(_SOL_SOCKET, _SO_PASSCRED, 1)
        self.child: int = child.detach()
        self.stranger: int | None = None  #: the user of a writer who was not ours
        self.descriptors = False  #: somebody has sent some, which no PMI does
        self._rank = rank
        self._received = received
        self._held = b""  # what could not be taken yet; nothing more is read meanwhile
        self._closed: Callable[[], None] = lambda: None
        fd = ours.detach()
        self._reader = FdReader(loop, fd, self._take, self._end, self._read)
        self._writer = Writer(loop, fd, lambda error: None)
        self._reader.watch(True)
        self.finish = self._reader.drain  #: the rank has ended: take what it has sent, and close

    @property
    def over(self) -> bool:
        """True once all that the rank has sent was taken, and nothing more will come."""
        return self._reader.closed and not self._held

    def attach(self, closed: Callable[[], None]) -> None:
        """`closed` is called when this is over."""
        self._closed = closed

    def close_child(self) -> None:
        """The rank has its own copy, or was not started."""
        os.close(self.child)

    def send(self, data: bytes) -> None:
        """A reply.  A rank that does not read is cut off."""
        self._writer.send(data)
        if self._writer.pending > _UNREAD:
            self.close()

    def resume(self) -> None:
        """Somebody takes what the rank sends from now on."""
        if self._held:
            held, self._held = self._held, b""
            self._received(self._rank, held)
            self._reader.watch(True)
            if self._reader.closed:
                self._end()

    def close(self) -> None:
        """Give the rank up; what could not be taken yet is dropped."""
        held, self._held = self._held, b""
        if held and self._reader.closed:
            self._end()
        self._reader.close()

    def _read(self, fd: int, size: int) -> bytes:
        from _socket import socket

        ours = socket(_AF_UNIX, _SOCK_STREAM, 0, fd)
        data: bytes
        try:
            data, extra, flags, _ = ours.recvmsg(size, _ROOM, _MSG_CMSG_CLOEXEC)  # of one writer only
        finally:
            ours.detach()
        self.descriptors = self.descriptors or bool(flags & _MSG_CTRUNC)
        for level, kind, facts in extra if data else ():
            if (level, kind) == (_SOL_SOCKET, _SCM_CREDENTIALS):
                user = int.from_bytes(facts[4:8], sys.byteorder)
                self.stranger = self.stranger if user == os.geteuid() else user
        return data

    def _take(self, data: bytes) -> None:
        if self._held or not self._received(self._rank, data):
            self._held += data
            self._reader.watch(False)

    def _end(self) -> None:
        self._writer.close()
        if not self._held:
            self._received(self._rank, b"")
            self._closed()
