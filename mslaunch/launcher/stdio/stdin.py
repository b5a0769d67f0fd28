"""Standard input: what the launcher reads goes to rank 0, to another rank, to all, or to none.

At most `WINDOW` bytes are under way to a rank that has not read them; then the launcher stops reading.  It knows
frames only through the `send` it is given.  The surprising thing: a terminal is read only while the launcher is in
its foreground, or the kernel would stop the whole launch (SIGTTIN).
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
    """Forwards descriptor `fd` to `targets`, rank by rank, through `send(rank, data)`; b"" is the end."""

    def __init__(self, loop: Loop, fd: int, targets: Sequence[int], send: Callable[[int, bytes], None]) -> None:
        self._loop = loop
        self._fd = fd
        self._send = send
        self._under_way = dict.fromkeys(targets, 0)
        self._ended = not targets
        self._reading = False
        self._closed = not _is_open(fd)

    def resume(self) -> None:
        """Read on, if there is room, somebody to read for, and we may.  First called when ranks are about to run."""
        if self._closed and not self._ended:
            self._ended = True
            for rank in self._under_way:
                self._send(rank, b"")
        want = not self._ended and max(self._under_way.values(), default=WINDOW) < WINDOW and self._in_foreground()
        if want != self._reading:
            self._reading = want
            self._loop.reader(self._fd, self._read if want else None)

    def _in_foreground(self) -> bool:
        try:
            return not os.isatty(self._fd) or os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # a terminal that is not ours to control
            return False

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # closed, or a terminal that hung up
            data = b""
        for rank in list(self._under_way):
            self._under_way[rank] += len(data)
            self._send(rank, data)
        if not data:
            self.stop()
        self.resume()

    def taken(self, rank: int, size: int) -> None:
        """`rank` took `size` bytes."""
        if rank in self._under_way:
            self._under_way[rank] -= size
            self.resume()

    def rank_ended(self, rank: int) -> None:
        """Nobody reads there any more; with the last reader we stop too."""
        self._under_way.pop(rank, None)
        if not self._under_way:
            self.stop()
        self.resume()

    def stop(self) -> None:
        """Leave the rest to whoever reads the descriptor after us."""
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
