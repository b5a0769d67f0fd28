"""Ranks: find the program, start it, carry its streams, signal it, see it end.

One `Rank` is one session of its own (a process group that a signal reaches as a whole).  It knows neither frames nor
the launcher: what happens goes to a `RankSink`.
"""

from __future__ import annotations

import os

from mslaunch.agent.ranks.pipes import FdPlacement, RankPipes
from mslaunch.datamodel.exit_status import from_wait_status
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.runtime.output_stream import StreamGroup
from mslaunch.runtime.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mslaunch.datamodel.exit_status import ExitStatus
    from mslaunch.runtime.loop import Loop

    class RankSink(Protocol):
        """Who hears of ranks."""

        def output(self, kind: int, rank: int, data: bytes) -> None:
            """`data` was printed on STDOUT or STDERR; b"" ends the stream."""

        def exited(self, rank: int, status: ExitStatus) -> None:
            """The rank's process has ended."""

        def stdin_taken(self, rank: int, size: int) -> None:
            """The rank's standard input took `size` bytes (or will never take them)."""


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


class RankProcess:
    """One process of the job, from spawn to the end of its streams."""

    def __init__(self, number: int, loop: Loop, sink: RankSink) -> None:
        self.number = number
        self.loop = loop
        self.sink = sink
        self.pid = 0
        self.running = False
        self.asked = False  # it was told to end, and was not on its way already
        self._streams = StreamGroup(loop, self._printed)
        self._stdin: Writer | None = None
        self._stdin_fd = -1
        self._stdin_ends = False
        self._retired: Callable[[], None] | None = None

    @property
    def over(self) -> bool:
        """True once the process *and* its streams have ended."""
        return not self.running and self._streams.over

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
        for kind, fd in fds.streams:
            self._streams.add(kind, fd)
        self.loop.child(self.pid, self._ended)
        if fds.stdin >= 0:
            self._stdin_fd = fds.stdin
            self._stdin = Writer(self.loop, fds.stdin, lambda error: self._stdin_closed(), self._stdin_progress)

    def watch(self, on: bool) -> None:
        """Read its streams, or let it wait."""
        self._streams.watch(on)

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
        self.asked = self.asked or (self.running and not _exiting(self.pid))
        self._streams.hurry(at_once)

    def retire(self, then: Callable[[], None]) -> None:
        """The process has ended; call `then` once its streams have, too.

        An orphan that holds one is heard no longer than `DRAIN_ENDING`, silent or not.
        """
        self._retired = then
        self._streams.hurry(True)
        if self.over:
            self.loop.soon(then)

    def _ended(self, status: int) -> None:
        self.running = False
        self._stdin_closed()
        self.sink.exited(self.number, from_wait_status(status)._replace(asked=self.asked))
        self._streams.program_ended()

    def _printed(self, kind: int, data: bytes) -> None:
        self.sink.output(kind, self.number, data)
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
