"""The descriptors of one rank: pipes or a pseudo-terminal for its 0, 1 and 2, and their placement for posix_spawn.

C programs hold lines back when their output is a pipe, so a program that is not Python gets a raw pseudo-terminal for
its standard output (docs/design.md, "Live output").  Python has PYTHONUNBUFFERED instead, since a pseudo-terminal
carries a seventh of what a pipe does.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.program_streams import open_stream, pipe_size

if TYPE_CHECKING:
    from collections.abc import Sequence

_OURS = 64  # descriptors that an agent needs for itself
_EVERYWHERE = 128  # descriptors that every system grants


class RankPipes:
    """`child` holds the descriptors to become 0, 1, 2, …; `streams` (kind, fd) and `stdin` (-1: none) are our ends."""

    def __init__(self, child: tuple[int, ...], streams: Sequence[tuple[int, int]], stdin: int, null: int) -> None:
        self.child = child
        self.streams = streams
        self.stdin = stdin
        self._null = null

    def close_child(self) -> None:
        """The child has its own copies now."""
        for fd in set(self.child) - {self._null}:
            os.close(fd)

    def close(self) -> None:
        """Nothing was started."""
        self.close_child()
        for _, fd in self.streams:
            os.close(fd)
        if self.stdin >= 0:
            os.close(self.stdin)


class FdPlacement:
    """Descriptors for `ranks` ranks, more than we were given if the hard limit allows.

    Ranks themselves get the limit that we were given, since a program that uses select(2) may break with a higher
    one.  posix_spawn(3) then accepts only numbers below it: so four low ones are kept, and `lend` lays the rank's
    descriptors over them for as long as it takes to start it.
    """

    def __init__(self, ranks: int, null: int) -> None:
        self._null = null
        self._low: list[int] = []
        self._given: tuple[int, int] | None = None
        self._raised: tuple[int, int] | None = None
        self.widen(ranks)

    def widen(self, ranks: int) -> None:
        """Have descriptors for `ranks` ranks in all: some may be spawned later."""
        need = 5 * ranks + _OURS
        if need <= _EVERYWHERE:
            return
        import resource

        self._set = resource.setrlimit
        self._what = resource.RLIMIT_NOFILE
        now, hard = resource.getrlimit(self._what)
        self._given = self._given or (now, hard)
        wanted = need if hard == resource.RLIM_INFINITY else min(need, hard)
        if now != resource.RLIM_INFINITY and wanted > now:
            self._raised = wanted, hard
            self._low = self._low or [os.dup(self._null) for _ in range(4)]
            self._set(self._what, self._raised)

    def place(self, child: Sequence[int]) -> Sequence[int]:
        """The numbers that stand for `child` until `take_back`."""
        if not (self._raised and self._given):
            return child
        for fd, low in zip(child, self._low):
            os.dup2(fd, low, inheritable=False)
        self._set(self._what, self._given)
        return self._low[: len(child)]

    def restore(self) -> None:
        """The rank was started, or was not."""
        if self._raised:
            self._set(self._what, self._raised)
            for low in self._low:
                os.dup2(self._null, low, inheritable=False)


def open_fds(null: int, stdin: bool, merge: bool, pty: bool, ranks: int) -> RankPipes:
    """Fresh descriptors for one of `ranks` ranks; `null` is /dev/null, open for reading.

    Raises OSError when there are no more descriptors.
    """
    ours_in, child_in = -1, null
    if stdin:
        child_in, ours_in = os.pipe()
    ours_out, child_out = open_stream(pty, pipe_size(ranks))
    streams = [(STDOUT, ours_out)]
    child_err = child_out
    if not merge:
        ours_err, child_err = open_stream(False)
        streams.append((STDERR, ours_err))
    return RankPipes((child_in, child_out, child_err), streams, ours_in, null)
