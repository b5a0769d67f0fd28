"""The standard streams of ranks on the launching host, which bypass mpirun.

mpirun's tags damage output (4.1 truncates pieces that grow beyond 8 KiB), so only the output of ranks on other hosts
passes through it.  A local rank opens its streams, a pseudo-terminal or pipe for stdout and a pipe for stderr, by its
local rank.  The first line on each is its hello (`rank_wrapper`).
"""

from __future__ import annotations

import os

from mslaunch.backends.openmpi.rank_wrapper import LocalPaths
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio.stdin import Stdin
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.fd_writer import HIGH, LOW
from mslaunch.runtime.program_streams import InputStream, StreamGroup, open_stream, pipe_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop

_MOST = 1024  #: ranks that get streams of their own; the output of more passes through mpirun
_RESERVED = 64  # descriptors for everything else
_STDIN = -1  # key of the one standard input


class LocalStreams:
    """The streams of all local ranks.  Those of local rank N have the keys 2 N (stdout) and 2 N + 1 (stderr)."""

    def __init__(
        self, loop: Loop, hello: Callable[[bytes], int | None], output: Callable[[int, int, bytes], None]
    ) -> None:
        """`hello(line)` reads a first line and returns the rank; `output(kind, rank, data)` gets the rest, b"" last."""
        self._loop = loop
        self._hello = hello
        self._output = output
        self._group = StreamGroup(loop, self._on_output)
        self._reading = True
        self._unopened: dict[int, int] = {}  # the ranks' ends, open here until a rank opens them
        self._heads: dict[int, bytes] = {}  # of the first lines
        self._ranks: dict[int, int | None] = {}
        self._reader = -1  # the rank that gets standard input
        self._stdin: Stdin | None = None
        self._input: InputStream | None = None

    def open(self, ranks: int, pty: bool, hello: str, stdin: tuple[int, int] | None) -> LocalPaths:
        """Make streams for at most `ranks` ranks; `stdin`: the descriptor to read, and the rank that gets it.

        Without /proc or free descriptors there are none, and all output passes through mpirun.
        """
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                boot = file.read().strip()
            ranks = min(ranks, _descriptors(ranks))
            for key in range(2 * ranks):
                self._open(key, pty, pipe_size(ranks))
        except OSError:
            self.close()
            return LocalPaths(hello)
        self._group.watch(True)
        numbers = tuple(self._unopened.values())
        paths = LocalPaths(hello, os.uname().nodename, boot, f"/proc/{os.getpid()}/fd", numbers)
        return paths._replace(reader=self._open_stdin(*stdin)) if stdin and stdin[1] < ranks else paths

    def _open_stdin(self, fd: int, rank: int) -> tuple[int, int]:
        """Returns the rank and the descriptor that it opens."""
        self._unopened[_STDIN], ours = os.pipe()
        forwarded = self._input = InputStream(self._loop, ours, lambda size: stdin.taken(rank, size))
        stdin = self._stdin = Stdin(self._loop, fd, (rank,), lambda rank, data: forwarded.feed(data))
        self._reader = rank
        return rank, self._unopened[_STDIN]

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
        self._release(key)
        if rank == self._reader and key % 2:  # stderr comes after stdin
            self._release(_STDIN)
            self.resume_input()

    def hold(self, pending: int) -> None:
        """Back-pressure: stop reading while the terminal has many bytes `pending`, and go on when it has taken them."""
        if pending > HIGH if self._reading else pending < LOW:
            self._reading = not self._reading
            self._group.watch(self._reading)

    @property
    def over(self) -> bool:
        """Whether all streams have ended."""
        return self._group.over

    def mpirun_ended(self) -> None:
        """Close streams that no rank has opened, and wait for orphans only a limited time."""
        self._give_up_unopened()
        self._group.program_ended()

    def hurry(self) -> None:
        """The job is being ended: do not wait for orphans that go on printing."""
        self._group.hurry(True)

    def resume_input(self) -> None:
        """Read standard input, if its rank has opened it and is not too far behind."""
        if self._stdin and _STDIN not in self._unopened:
            self._stdin.resume()

    def _give_up_unopened(self) -> None:
        if self._stdin and self._input:
            self._stdin.stop()
            self._input.close()
        self._release(*self._unopened)

    def _release(self, *keys: int) -> None:
        for key in keys:
            if key in self._unopened:
                os.close(self._unopened.pop(key))

    def close(self) -> None:
        """Read what is there by now, then close everything."""
        self._give_up_unopened()
        self._group.drain()


def _descriptors(ranks: int) -> int:
    """How many ranks get descriptors, at four each.  Raises the soft limit as far as the hard limit allows."""
    import resource

    now, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 4 * min(ranks, _MOST) + _RESERVED
    if now != resource.RLIM_INFINITY and need > now:
        now = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, hard))
    return _MOST if now == resource.RLIM_INFINITY else max(0, min(_MOST, (now - _RESERVED) // 4))
