"""The output streams of ranks on the launching host: the ranks open them, so that nothing passes through mpirun.

mpirun's tags cost bytes (4.1 cuts what grows beyond 8 KiB), so only ranks of other hosts are read through it.  A local
rank finds its streams, a pseudo-terminal or pipe for stdout and a pipe for stderr, by its local rank; the first line of
each is its hello (`rank_wrapper`).
"""

from __future__ import annotations

import os

from mslaunch.backends.openmpi.rank_wrapper import Streams
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio.stdin import Stdin
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.output_stream import StreamGroup, open_stream, pipe_size
from mslaunch.runtime.writer import HIGH, LOW, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.runtime.loop import Loop

_MOST = 1024  #: ranks that get streams of their own; the output of more passes through mpirun
_RESERVED = 64  # descriptors for everything else


class LocalStreams:
    """The streams of all local ranks, of which those with even keys are stdout, the next higher ones stderr."""

    def __init__(
        self, loop: Loop, hello: Callable[[bytes], int | None], output: Callable[[int, int, bytes], None]
    ) -> None:
        """`hello(line)` reads a first line and returns the rank; `output(kind, rank, data)` gets the rest, b"" last."""
        self._feed: Feed | None = None
        self._loop = loop
        self._hello = hello
        self._output = output
        self._group = StreamGroup(loop, self._on_output)
        self._reading = True
        self._unopened: dict[int, int] = {}  # the ranks' ends, held until opened: else the streams would end at once
        self._heads: dict[int, bytes] = {}  # of the first lines
        self._ranks: dict[int, int | None] = {}

    def open(self, ranks: int, pty: bool, hello: str, stdin: tuple[int, int] | None) -> Streams:
        """Streams for at most `ranks` ranks; `stdin`: the descriptor to read, and the rank that gets it.

        There are none where no rank would find them (no /proc, no descriptors): all output passes through mpirun then.
        """
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                boot = file.read().strip()
            ranks = min(ranks, _descriptors(ranks))
            for key in range(2 * ranks):
                self._open(key, pty, pipe_size(ranks))
        except OSError:
            self.close()
            return Streams(hello)
        self._group.watch(True)
        numbers = tuple(self._unopened.values())
        streams = Streams(hello, os.uname().nodename, boot, f"/proc/{os.getpid()}/fd", numbers)
        if stdin is None or ranks <= stdin[1]:
            return streams
        self._feed = Feed(self._loop, *stdin)
        return streams._replace(reader=(stdin[1], self._feed.number))

    def _open(self, key: int, pty: bool, size: int) -> None:
        ours, self._unopened[key] = open_stream(False) if key % 2 else open_stream(pty, size)
        self._heads[key] = b""
        self._group.add(key, ours)

    def _on_output(self, key: int, data: bytes) -> None:
        if key in self._heads:
            self._heads[key], end, data = (self._heads[key] + data).partition(b"\n")
            if not end:
                return
            self._begin(key, self._hello(self._heads.pop(key)))
            if not data:
                return
        rank = self._ranks.get(key)
        if rank is not None:
            self._output(STDERR if key % 2 else STDOUT, rank, data)

    def _begin(self, key: int, rank: int | None) -> None:
        """A rank has opened the stream."""
        self._ranks[key] = rank
        self._release([key])
        if self._feed and self._feed.rank == rank and key % 2:  # stderr comes after stdin
            self._feed.begin()

    def hold(self, pending: int) -> None:
        """Read, or let the ranks wait, according to the bytes that the terminal has not taken yet."""
        if pending > HIGH if self._reading else pending < LOW:
            self._reading = not self._reading
            self._group.watch(self._reading)

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        return self._group.over

    def mpirun_ended(self) -> None:
        """Ranks that have not opened their streams will not, and orphans are not waited for long."""
        self._give_up_unopened()
        self._group.program_ended()

    def hurry(self) -> None:
        """The job is being ended: orphans that print are not waited for either."""
        self._group.hurry(True)

    def resume_input(self) -> None:
        """Read on after the launcher was stopped."""
        if self._feed:
            self._feed.resume()

    def _give_up_unopened(self) -> None:
        if self._feed:
            self._feed.close()
        self._release(list(self._unopened))

    def _release(self, keys: Sequence[int]) -> None:
        for key in keys:
            fd = self._unopened.pop(key, -1)
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        """Read what is there by now, and no more."""
        self._give_up_unopened()
        self._group.drain()


class Feed:
    """Standard input for one local rank: what `fd` brings goes into a pipe; the rank opens its `number` end."""

    def __init__(self, loop: Loop, fd: int, rank: int) -> None:
        self.rank = rank
        self.number, self._pipe = os.pipe()  # the number is held until the rank has opened it
        self._writer = Writer(loop, self._pipe, lambda error: self.close(), self._taken)
        self._stdin = Stdin(loop, fd, (rank,), self._send)
        self._ended = False

    def begin(self) -> None:
        """The rank has opened its end."""
        if self.number >= 0:
            os.close(self.number)
            self.number = -1
            self._stdin.resume()

    def resume(self) -> None:
        """Read on after the launcher was stopped."""
        if self.number < 0:
            self._stdin.resume()

    def _send(self, rank: int, data: bytes) -> None:
        if data and self._pipe >= 0:
            self._writer.send(data)
        elif not data:
            self._ended = True
            self._taken(0)

    def _taken(self, size: int) -> None:
        self._stdin.taken(self.rank, size)
        if self._ended and not self._writer.pending:
            self.close()

    def close(self) -> None:
        """The rank reads no more, or all has been read."""
        self._stdin.stop()
        self._writer.close()
        for fd in (self.number, self._pipe):
            if fd >= 0:
                os.close(fd)
        self.number = self._pipe = -1


def _descriptors(ranks: int) -> int:
    """How many ranks there are descriptors for, four each; the soft limit is raised if the hard one allows."""
    import resource

    now, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 4 * min(ranks, _MOST) + _RESERVED
    if now not in (resource.RLIM_INFINITY,) and need > now:
        now = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, hard))
    return _MOST if now == resource.RLIM_INFINITY else max(0, min(_MOST, (now - _RESERVED) // 4))
