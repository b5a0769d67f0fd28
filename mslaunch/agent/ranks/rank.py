"""Ranks: find the program, start it, carry its streams, signal it, see it end.

One `Rank` is one session of its own (a process group that a signal reaches as a whole).  It knows neither frames nor
the launcher: what happens goes to a `RankSink`.  The one surprising thing: a line that a program wrote in two pieces
(Python without a buffer writes "text" and then "\\n") waits `JOIN` seconds for its end, so that lines of different
ranks do not mix; nothing else is ever held back.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent.ranks.pipes import FdPlacement, RankPipes
from mslaunch.datamodel.exit_status import from_wait_status
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.runtime.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mslaunch.datamodel.exit_status import ExitStatus
    from mslaunch.runtime.loop import Loop, Timer

    class RankSink(Protocol):
        """Who hears of ranks."""

        def output(self, kind: int, rank: int, data: bytes) -> None:
            """`data` was printed on STDOUT or STDERR; b"" ends the stream."""

        def exited(self, rank: int, status: ExitStatus) -> None:
            """The rank's process has ended."""

        def stdin_taken(self, rank: int, size: int) -> None:
            """The rank's standard input took `size` bytes (or will never take them)."""


JOIN = 0.04  #: seconds that the rest of a line is waited for
DRAIN = 5.0  #: seconds of silence after which a stream is given up that an orphan of an ended rank holds open
DRAIN_ENDING = 0.5  #: the same while the job is being ended
_TAIL = 1 << 16
_FULL = 1 << 20  # what a pipe of ours can hold (`fds`)
_RESET = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGCHLD",
                                             "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTSTP", "SIGTTIN", "SIGTTOU")
          if hasattr(signal, name)]  # fmt: skip


def _exiting(pid: int) -> bool:
    """Others may see its connections closed before it can be reaped.  proc(5): `flags` of stat, PF_EXITING."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] == b"Z" or bool(int(fields[6]) & 4)


class RankStream:
    """One output stream of one rank: reads what comes and passes on whole lines where it can."""

    def __init__(self, rank: RankProcess, kind: int, fd: int) -> None:
        self._rank = rank
        self._kind = kind
        self._fd = fd
        self._size = 1 << 16
        self._tail = b""
        self._since = 0.0  # when the line of the tail began to come
        self._timer: Timer | None = None
        os.set_blocking(fd, False)

    def watch(self, on: bool) -> None:
        """Read, or let the program wait (back-pressure)."""
        if self._fd >= 0:
            self._rank.loop.reader(self._fd, self._read if on else None)

    def give_up(self) -> None:
        """An orphan holds it: pass on what is there by now, no more than a pipe holds, and close it."""
        left = _FULL
        while left > 0:
            size = self._take()
            if not size:
                break
            left -= size
        self.close()

    def _read(self) -> None:
        self._take()

    def _take(self) -> int:
        """Read once; the number of bytes, 0 if there is nothing or nothing more will come."""
        try:
            data = os.read(self._fd, self._size)
        except BlockingIOError:
            return 0
        except OSError:  # EIO: the last holder of a pseudo-terminal closed it
            data = b""
        if not data:
            self.close()
            return 0
        self._came(data)
        return len(data)

    def _came(self, data: bytes) -> None:
        self._rank.heard(self)
        if len(data) == self._size < _FULL:
            self._size *= 4
        had = len(self._tail)
        if had:
            data = self._tail + data
        cut = data.rfind(b"\n") + 1
        if len(data) - cut > _TAIL:
            cut = len(data)
        self._tail = data[cut:]
        if cut:
            self._rank.sink.output(self._kind, self._rank.number, data[:cut] if self._tail else data)
        if self._tail:
            if cut or not had:
                self._since = time.monotonic()
            if self._timer is None:
                self._timer = self._rank.loop.after(JOIN, self._waited)

    def _waited(self) -> None:
        """The timer was set for a line that may have ended since: another may have begun."""
        left = self._since + JOIN - time.monotonic()
        if self._tail and left > 0:
            self._timer = self._rank.loop.after(left, self._waited)
        else:
            self._flush()

    def _flush(self) -> None:
        self._timer = None
        if self._tail:
            tail, self._tail = self._tail, b""
            self._rank.sink.output(self._kind, self._rank.number, tail)

    def close(self) -> None:
        """The end of the stream: pass on what is left, and say so once."""
        if self._fd < 0:
            return
        if self._timer:
            self._timer.cancel()
        self._flush()
        self._rank.loop.reader(self._fd, None)
        os.close(self._fd)
        self._fd = -1
        self._rank.sink.output(self._kind, self._rank.number, b"")
        self._rank.stream_closed(self)


class RankProcess:
    """One process of the job, from spawn to the end of its streams."""

    def __init__(self, number: int, loop: Loop, sink: RankSink) -> None:
        self.number = number
        self.loop = loop
        self.sink = sink
        self.pid = 0
        self.running = False
        self.asked = False  # it was told to end, and was not on its way already
        self._streams: list[RankStream] = []
        self._stdin: Writer | None = None
        self._stdin_fd = -1
        self._stdin_ends = False
        self._watched = False
        self._drain: Timer | None = None
        self._drain_seconds = DRAIN
        self._deaf = False  # orphans have little time left, silent or not
        self._retired: Callable[[], None] | None = None

    @property
    def over(self) -> bool:
        """True once the process *and* its streams have ended."""
        return not self.running and not self._streams

    def start(
        self, path: str, argv: list[str], env: dict[str, str], fds: RankPipes, room: FdPlacement, line: int = -1
    ) -> None:
        """Spawn it; `line` becomes its descriptor 3.  Raises `OSError` if the kernel will not, with `fds` closed."""
        child = (*fds.child, line) if line >= 0 else fds.child
        actions = [(os.POSIX_SPAWN_DUP2, fd, index) for index, fd in enumerate(room.place(child))]
        try:
            self.pid = os.posix_spawn(
                path, argv, env, file_actions=actions, setsid=True, setsigdef=_RESET, setsigmask=[]
            )
        except OSError:
            fds.close()
            raise
        finally:
            room.restore()
        fds.close_child()
        self.running = True
        self._streams = [RankStream(self, kind, fd) for kind, fd in fds.streams]
        self.loop.child(self.pid, self._ended)
        if fds.stdin >= 0:
            self._stdin_fd = fds.stdin
            self._stdin = Writer(self.loop, fds.stdin, lambda error: self._stdin_closed(), self._stdin_progress)

    def watch(self, on: bool) -> None:
        """Read its streams, or let it wait.  Silence counts only while we listen."""
        self._watched = on
        for stream in self._streams:
            stream.watch(on)
        if not on and self._drain:
            self._drain.cancel()
            self._drain = None
        elif on and not self.running and self._streams:
            self._wait_for_orphans()

    def signal(self, signum: int) -> None:
        """Send a signal to the rank's process group.  The process is ours and not yet reaped, so the id is its own."""
        if self.running:
            try:
                os.killpg(self.pid, signum)
            except ProcessLookupError:  # not yet its own group
                os.kill(self.pid, signum)
            except PermissionError:  # it runs as another user now: only that one, or root, can end it
                pass

    def hurry(self, at_once: bool = False) -> None:
        """The job is being ended, and this process, too; orphans that hold a stream have little time left.

        `at_once`: those that are not silent, too; they may print for ever.
        """
        self._deaf = self._deaf or at_once
        self.asked = self.asked or (self.running and not _exiting(self.pid))
        self._drain_seconds = DRAIN_ENDING
        if self._drain:
            self._wait_for_orphans()

    def retire(self, then: Callable[[], None]) -> None:
        """The process has ended; call `then` once its streams have, too.

        An orphan that holds one is heard no longer than `DRAIN_ENDING`, silent or not.
        """
        self._retired, self._deaf = then, True
        self._drain_seconds = DRAIN_ENDING
        if self.over:
            self.loop.soon(then)
        elif not self.running:
            self._wait_for_orphans()

    def _ended(self, status: int) -> None:
        self.running = False
        self._stdin_closed()
        self.sink.exited(self.number, from_wait_status(status)._replace(asked=self.asked))
        if self._streams:
            self._wait_for_orphans()

    def _wait_for_orphans(self) -> None:
        if self._drain:
            self._drain.cancel()
            self._drain = None
        if self._watched:
            self._drain = self.loop.after(self._drain_seconds, self._give_up)

    def _give_up(self) -> None:
        for stream in list(self._streams):
            stream.give_up()

    def heard(self, stream: RankStream) -> None:
        """A stream is alive: the silence that counts begins anew."""
        if self._drain and not self._deaf:
            self._wait_for_orphans()

    def stream_closed(self, stream: RankStream) -> None:
        """One stream less."""
        self._streams.remove(stream)
        if not self._streams and self._drain:
            self._drain.cancel()
            self._drain = None
        if self.over and self._retired:
            self.loop.soon(self._retired)

    # --- standard input

    def feed(self, data: bytes) -> None:
        """Bytes for its standard input; b"" ends it once they are read."""
        if self._stdin is None:
            self.sink.stdin_taken(self.number, len(data))
        elif data:
            self._stdin.send(data)
        else:
            self._stdin_ends = True
            self._stdin_progress(0)

    def _stdin_progress(self, size: int) -> None:
        if size:
            self.sink.stdin_taken(self.number, size)
        if self._stdin_ends and self._stdin and not self._stdin.pending:
            self._stdin_closed()

    def _stdin_closed(self) -> None:
        if self._stdin:
            left = self._stdin.pending
            self._stdin.close()
            self._stdin = None
            os.close(self._stdin_fd)
            self.sink.stdin_taken(self.number, left)
