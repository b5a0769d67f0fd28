"""The streams of ranks on the launching host: made here, opened by the ranks themselves, read without mpirun between.

mpirun's tags cost bytes (4.1 cuts what grows beyond 8 KiB), so they are for ranks of other hosts alone.  Each local
rank has a pseudo-terminal or a pipe for its stdout, and a pipe for its stderr; it finds them by its local rank and says
who it is in the first line.  The surprising thing: our own copy of the rank's end stays open until that line has come,
or the stream would end before it began.
"""

from __future__ import annotations

import os

from mslaunch.agent.ranks.pipes import open_fds
from mslaunch.agent.ranks.rank import DRAIN, DRAIN_ENDING, RankStream
from mslaunch.backends.openmpi.rank_wrapper import Streams
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio.stdin import Stdin
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.runtime.loop import Loop, Timer

    Write = Callable[[int, int, bytes], None]

_MOST = 1024  #: ranks that get streams of their own; the output of more passes through mpirun
_KEPT = 64  # descriptors for everything else


class _LocalRank:
    """What one local rank may open: a `Stream` needs an owner with these names."""

    def __init__(self, number: int, nearby: LocalStreams, child: dict[int, int]) -> None:
        self.number = number
        self.loop = nearby.loop
        self.sink = self
        self.child = child  # kind -> the rank's end, as long as we hold it
        self.rank: int | None = None
        self.heads: dict[int, bytes] = {STDOUT: b"", STDERR: b""}  # what has come of the first lines
        self.streams: list[Any] = []
        self._nearby = nearby

    def heard(self, stream: object) -> None:
        self._nearby.heard()

    def stream_closed(self, stream: object) -> None:
        self.streams.remove(stream)
        self._nearby.closed(self)

    def output(self, kind: int, number: int, data: bytes) -> None:
        """The first line of each stream says whose it is."""
        if kind in self.heads:
            self.heads[kind] += data
            line, end, rest = self.heads[kind].partition(b"\n")
            if not end:
                return
            del self.heads[kind]
            self.rank = self._nearby.introduced(line) if self.rank is None else self.rank
            self.let_go(kind)
            if kind == STDERR:  # the later one
                self._nearby.came(self)
            if not rest:
                return
            data = rest
        if self.rank is not None:
            self._nearby.write(kind, self.rank, data)

    def let_go(self, kind: int) -> None:
        if kind in self.child:
            os.close(self.child.pop(kind))


class LocalStreams:
    """The streams of all local ranks; `write(kind, rank, data)` takes what they print, b"" at the end of each."""

    def __init__(self, loop: Loop, write: Write, introduced: Callable[[bytes], int | None]) -> None:
        """`introduced` reads the line by which a rank says who it is."""
        self.loop = loop
        self.write = write
        self.introduced = introduced
        self._places: list[_LocalRank] = []
        self._drain: Timer | None = None
        self._seconds = DRAIN
        self._ended = False
        self._deaf = False  # who still speaks has little time left
        self._watched = True
        self.feed: Feed | None = None

    def open(self, ranks: int, terminals: bool, hello: str, stdin: tuple[int, int] | None) -> Streams:
        """Streams for up to `ranks` ranks; `terminals`: their stdout is a pseudo-terminal.

        `stdin`: the descriptor that is to be read, and the rank that gets it.

        None are made where nothing would find them (no /proc, no descriptors): all output passes through mpirun then.
        """
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                boot = file.read().strip()
            ranks = min(ranks, _room(ranks))
            for number in range(ranks):
                self._places.append(self._place(number, terminals, ranks))
        except OSError:
            self.close()
            return Streams(hello)
        numbers = [place.child[kind] for place in self._places for kind in (STDOUT, STDERR)]
        streams = Streams(hello, os.uname().nodename, boot, f"/proc/{os.getpid()}/fd", tuple(numbers))
        if stdin is None or ranks <= stdin[1]:
            return streams
        self.feed = Feed(self.loop, *stdin)
        return streams._replace(reader=(stdin[1], self.feed.number))

    def came(self, place: _LocalRank) -> None:
        """A rank has said who it is."""
        if self.feed and place.rank == self.feed.rank:
            self.feed.begin()

    def _place(self, number: int, terminals: bool, ranks: int) -> _LocalRank:
        fds = open_fds(-1, False, False, terminals, ranks)
        place = _LocalRank(number, self, {STDOUT: fds.child[1], STDERR: fds.child[2]})
        place.streams = [RankStream(place, kind, fd) for kind, fd in fds.streams]  # type: ignore[arg-type]
        self._watch(place, True)
        return place

    @staticmethod
    def _watch(place: _LocalRank, on: bool) -> None:
        for stream in place.streams:
            stream.watch(on)

    def watch(self, on: bool) -> None:
        """Read, or let the ranks wait."""
        self._watched = on
        for place in self._places:
            self._watch(place, on)
        if self._drain:
            self._drain.cancel()
            self._drain = None
        self.heard()

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        return not self._places

    def closed(self, place: _LocalRank) -> None:
        """One of its streams has ended."""
        if not place.streams:
            self._places.remove(place)

    def ended(self, soon: bool) -> None:
        """mpirun is over: who never came will not come, and who holds a stream in silence is not waited for long.

        `soon`: the job is being ended, and who is not silent is not waited for either.
        """
        self._ended, self._deaf = True, soon
        if self.feed:
            self.feed.close()
        self._seconds = DRAIN_ENDING if soon else DRAIN
        for place in list(self._places):
            for kind in list(place.child):
                place.let_go(kind)
        self._wait_for_silence()

    def heard(self) -> None:
        """Somebody speaks: the silence that counts begins anew."""
        if not (self._drain and self._deaf):
            self._wait_for_silence()

    def _wait_for_silence(self) -> None:
        if self._drain:
            self._drain.cancel()
            self._drain = None
        if self._ended and self._watched and self._places:
            self._drain = self.loop.after(self._seconds, self.close)

    def close(self) -> None:
        """Read what is there by now, and no more."""
        if self.feed:
            self.feed.close()
        for place in list(self._places):
            for kind in list(place.child):
                place.let_go(kind)
            for stream in list(place.streams):
                stream.give_up()


class Feed:
    """Standard input for one local rank: `fd` is ours, the rank opens `number`, which we hold until it has come."""

    def __init__(self, loop: Loop, fd: int, rank: int) -> None:
        self.rank = rank
        self.number, self._pipe = os.pipe()
        self._outbox = Writer(loop, self._pipe, lambda error: self.close(), self._taken)
        self._stdin = Stdin(loop, fd, (rank,), self._send)
        self._ended = False

    def begin(self) -> None:
        """The rank has opened its end."""
        if self.number >= 0:
            os.close(self.number)
            self.number = -1
            self._stdin.resume()

    def resume(self) -> None:
        """Read on, if we were stopped."""
        if self.number < 0:
            self._stdin.resume()

    def _send(self, rank: int, data: bytes) -> None:
        if data and self._pipe >= 0:
            self._outbox.send(data)
        elif not data:
            self._ended = True
            self._taken(0)

    def _taken(self, size: int) -> None:
        self._stdin.taken(self.rank, size)
        if self._ended and not self._outbox.pending:
            self.close()

    def close(self) -> None:
        """Nobody reads any more, or all has been read."""
        self._stdin.stop()
        if self.number >= 0:
            os.close(self.number)
            self.number = -1
        if self._pipe >= 0:
            self._outbox.close()
            os.close(self._pipe)
            self._pipe = -1


def _room(ranks: int) -> int:
    """How many ranks there are descriptors for, four each; more are allowed to us if the hard limit lets us."""
    import resource

    now, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 4 * min(ranks, _MOST) + _KEPT
    if now not in (resource.RLIM_INFINITY,) and need > now:
        now = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, hard))
    return _MOST if now == resource.RLIM_INFINITY else max(0, min(_MOST, (now - _KEPT) // 4))
