"""Standard input: what the launcher reads goes to rank 0, to another rank, to all, or to none.

At most `WINDOW` bytes are on their way to a rank that has not read them; then the launcher stops reading, as it does
while too much is on its way to a host.  A terminal is read only while the launcher is in its foreground; otherwise the
kernel would stop the launcher (SIGTTIN).
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.runtime.loop import Loop

WINDOW = 1 << 18
_CHUNK = 1 << 16


class Stdin:
    """Forwards descriptor `fd` to `targets`, rank by rank, through `send(rank, data)`; b"" is the end.

    A closed descriptor counts as empty.
    """

    def __init__(self, loop: Loop, fd: int, targets: Sequence[int], send: Callable[[int, bytes], None]) -> None:
        self._loop = loop
        self._fd = fd if _is_open(fd) else -1
        self._send = send
        self._unread = dict.fromkeys(targets, 0)
        self.targets = targets
        self.waits = False  #: some of them have not been started
        self._ended = not targets
        self._reading = False
        self._held = 0  # hosts that have no room for more, once for each rank there

    def hold(self) -> None:
        """Read nothing more, until `release` was called as many times as this."""
        self._held += 1

    def release(self) -> None:
        """A host has room again."""
        self._held -= 1
        self.resume()

    def resume(self) -> None:
        """Read if a rank has room and the terminal permits it.  First called when ranks are about to run."""
        want = (
            not (self._ended or self.waits or self._held)
            and max(self._unread.values(), default=WINDOW) < WINDOW
            and self._in_foreground()
        )
        if want and self._fd < 0:
            self._read()
        elif want != self._reading:
            self._reading = want
            self._loop.reader(self._fd, self._read if want else None)

    def _in_foreground(self) -> bool:
        try:
            return not os.isatty(self._fd) or os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # not our controlling terminal
            return False

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # closed, or a terminal that hung up
            data = b""
        for rank in list(self._unread):
            self._unread[rank] += len(data)
            self._send(rank, data)
        if not data:
            self.stop()
        self.resume()

    def may_take(self, rank: int, size: int) -> bool:
        """Whether `rank` was sent so many bytes that it has not read.  Who claims more would get all of our input."""
        return 0 <= size <= self._unread.get(rank, size)

    def taken(self, rank: int, size: int) -> None:
        """`rank` has read `size` bytes."""
        if rank in self._unread:
            self._unread[rank] -= size
            self.resume()

    def rank_ended(self, rank: int) -> None:
        """A rank has ended; after the last one nothing more is read."""
        self._unread.pop(rank, None)
        if not self._unread:
            self.stop()
        self.resume()

    def stop(self) -> None:
        """Stop reading; the rest is left to other processes with this descriptor."""
        self._ended = True
        if self._reading:
            self._reading = False
            self._loop.reader(self._fd, None)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
