"""One process of the job, a rank, a service or a debugger: start it, carry its streams, signal it, see it end.

Each is a session of its own, so that a signal reaches it and all that it has started.  Its exit is reported once it
was reaped and its PMI socket has been read to the end, so that an MPI_Abort comes before the exit.  The ends of its
output streams are reported separately, since an orphan may hold them open.  Both waits are bounded by
`runtime.program_streams.DRAIN`.

C programs hold lines back when their output is a pipe, so a program that is not Python gets a raw pseudo-terminal for
its standard output (docs/design.md, "Live output").  Python has PYTHONUNBUFFERED instead, since a pseudo-terminal
carries a seventh of what a pipe does.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.node_report import from_wait_status
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, signal
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.program_streams import InputStream, StreamGroup, open_stream, pipe_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.agent.ranks.pmi_socket import PmiSocket
    from mslaunch.datamodel.node_report import ExitStatus
    from mslaunch.runtime.loop import Loop


_RESET = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGCHLD",
                                             "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTSTP", "SIGTTIN", "SIGTTOU")
          if hasattr(signal, name)]  # fmt: skip
_OURS = 64  # descriptors that an agent needs for itself
_EVERYWHERE = 128  # descriptors that every system grants


class ProcessEvents(NamedTuple):
    """Called with what a process does; `rank` is its number in frames."""

    output: Callable[[int, int, bytes], None]  # kind (STDOUT or STDERR), rank, data; b"" ends the stream
    exited: Callable[[int, ExitStatus], None]  # rank, how
    stdin_taken: Callable[[int, int], None] = lambda rank, size: None  # rank, bytes written or never to be read


class RankProcess:
    """One process, from spawn to the end of its streams."""

    def __init__(self, number: int, loop: Loop, events: ProcessEvents) -> None:
        self.number = number
        self._loop = loop
        self._events = events
        self.pid = 0
        self.running = False
        self._rest = False  # SIGTERM went to the rank alone, and goes to its group once it has ended
        self._asked = False  # it was told to end before it was exiting by itself
        self._status: ExitStatus | None = None  # until it is reported
        self._pmi: PmiSocket | None = None
        self._streams = StreamGroup(loop, self._printed)
        self._stdin: InputStream | None = None
        self._retired: Callable[[], None] | None = None

    @property
    def over(self) -> bool:
        """True once the process *and* its streams have ended."""
        return not self.running and self._status is None and self._streams.over

    def start(
        self,
        path: str,
        argv: list[str],
        env: dict[str, str],
        fds: RankPipes,
        placement: FdPlacement | None = None,
        pmi: PmiSocket | None = None,
    ) -> None:
        """Spawn it; its end of `pmi` becomes descriptor 3.  Raises OSError, with `fds` closed."""
        child = (*fds.child, pmi.child) if pmi else fds.child
        placed = placement.place(child) if placement else child
        actions = [(os.POSIX_SPAWN_DUP2, fd, index) for index, fd in enumerate(placed)]
        try:
            self.pid = os.posix_spawn(
                path, argv, env, file_actions=actions, setsid=True, setsigdef=_RESET, setsigmask=[]
            )
        except OSError:
            fds.close()
            raise
        finally:
            if placement:
                placement.restore()
        fds.close_child()
        self.running = True
        for kind, fd in fds.streams:
            self._streams.add(kind, fd)
        self._loop.child(self.pid, self._ended)
        if fds.stdin >= 0:
            self._stdin = InputStream(self._loop, fds.stdin, lambda size: self._events.stdin_taken(self.number, size))
        if pmi:
            self._pmi = pmi
            pmi.attach(self._progress)

    def watch(self, on: bool) -> None:
        """Read its streams, or let it wait."""
        self._streams.watch(on)

    def feed(self, data: bytes) -> None:
        """Bytes for its standard input; b"" ends it once they are read."""
        if self._stdin:
            self._stdin.feed(data)
        else:
            self._events.stdin_taken(self.number, len(data))

    def signal(self, signum: int) -> None:
        """Send a signal to the rank's process group.  The process is ours and not yet reaped, so the id is its own."""
        if self.running:
            try:
                os.killpg(self.pid, signum)
            except ProcessLookupError:  # not yet its own group
                os.kill(self.pid, signum)
            except PermissionError:  # it runs as another user now: only that one, or root, can end it
                pass

    def ask(self, signum: int, to: str) -> None:
        """Send a signal that asks a program to end or to save: to the rank, or to its "group".

        To the rank means: to what it runs if it is a shell.  Its helpers, such as data loaders, are left alone, for it
        may need them to save its work; SIGTERM comes to them once it has ended.
        """
        if to == "group":
            self.signal(signum)
        elif self.running:
            from mslaunch.agent.ranks import programs_of_shells as programs

            self._rest = self._rest or signum == signal.SIGTERM
            if signum == signal.SIGTERM:
                programs.ask_to_end(self.pid, self._loop, lambda: self.running)
            else:
                programs.ask(self.pid, signum)

    def hurry(self, at_once: bool = False) -> None:
        """The job is being ended, and this process with it: orphans that hold a stream have little time left.

        `at_once`: so have orphans that still print, for they may print for ever.
        """
        if self.running:
            from mslaunch.host.processes import is_exiting

            self._asked = self._asked or not is_exiting(self.pid)
        self._streams.hurry(at_once)
        self._bound_pmi()

    def retire(self, then: Callable[[], None]) -> None:
        """The process has ended; call `then` once its streams have ended as well.

        An orphan that holds one is read no longer than `DRAIN_ENDING`, silent or not.
        """
        self._retired = then
        self._streams.hurry(True)
        self._progress()

    # --- its end

    def _ended(self, status: int) -> None:
        self.running = False
        if self._rest:  # helpers have nobody to help any more
            from mslaunch.agent.ranks.programs_of_shells import end_group

            end_group(self.pid)
        self._status = from_wait_status(status)._replace(asked=self._asked)
        if self._stdin:
            self._stdin.close()
        if self._pmi:
            self._pmi.finish()
        self._bound_pmi()
        self._progress()
        self._streams.program_ended()

    def _bound_pmi(self) -> None:
        """What the rank has sent may wait for the module that reads it, but not for ever."""
        if self._status and self._pmi and not self._pmi.over:
            self._loop.after(self._streams.seconds, self._pmi.close)

    def _printed(self, kind: int, data: bytes) -> None:
        self._events.output(kind, self.number, data)
        if not data:
            self._progress()

    def _progress(self) -> None:
        """The process or one of its streams has ended: report the exit, once, and then that all is over."""
        if self._status and (self._pmi is None or self._pmi.over):
            status, self._status = self._status, None
            self._events.exited(self.number, status)
        if self.over and self._retired:
            self._loop.soon(self._retired)
            self._retired = None


class RankPipes(NamedTuple):
    """The descriptors of one process, and our ends of them."""

    child: tuple[int, ...]  # to become 0, 1, 2, …
    streams: Sequence[tuple[int, int]]  # kind, fd
    stdin: int  # -1: none

    def close_child(self) -> None:
        """The child has its own copies now."""
        for fd in set(self.child):
            os.close(fd)

    def close(self) -> None:
        """Nothing was started."""
        self.close_child()
        for fd in (*(fd for _, fd in self.streams), *([self.stdin] if self.stdin >= 0 else [])):
            os.close(fd)


class FdPlacement:
    """Descriptors for many ranks, more than we were given if the hard limit allows.

    Ranks themselves get the limit that we were given, since a program that uses select(2) may break with a higher
    one.  posix_spawn(3) then accepts only numbers below it: so four low ones are kept, and `place` lays the rank's
    descriptors over them for as long as it takes to start it.
    """

    def __init__(self) -> None:
        self._null = -1
        self._low: list[int] = []
        self._given = self._raised = (0, 0)  # soft and hard limit; equal: there is nothing to do

    def widen(self, ranks: int) -> None:
        """Have descriptors for `ranks` ranks in all: some may be spawned later."""
        need = 5 * ranks + _OURS
        if need <= _EVERYWHERE:
            return
        import resource

        now, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = need if hard == resource.RLIM_INFINITY else min(need, hard)
        if now != resource.RLIM_INFINITY and wanted > now:
            if not self._low:
                self._given = now, hard
                self._null, *self._low = (os.open(os.devnull, os.O_RDONLY) for _ in range(5))
            self._raised = wanted, hard
            _set_limit(self._raised)

    def place(self, child: Sequence[int]) -> Sequence[int]:
        """The numbers that stand for `child` until `restore`."""
        if not self._low:
            return child
        for fd, low in zip(child, self._low):
            os.dup2(fd, low, inheritable=False)
        _set_limit(self._given)
        return self._low[: len(child)]

    def restore(self) -> None:
        """The rank was started, or was not."""
        if self._low:
            _set_limit(self._raised)
        for low in self._low:
            os.dup2(self._null, low, inheritable=False)


def open_fds(stdin: bool = False, merge: bool = False, pty: bool = False, ranks: int = 1) -> RankPipes:
    """Fresh descriptors for one of `ranks` ranks; raises OSError when there are no more."""
    # the child's stdin and ours, our stdout and the child's, our stderr and the child's
    opened = list(os.pipe()) if stdin else [os.open(os.devnull, os.O_RDONLY), -1]
    try:
        opened += open_stream(pty, pipe_size(ranks))
        streams = [(STDOUT, opened[2])]
        if not merge:
            opened += open_stream(False)
            streams.append((STDERR, opened[4]))
    except (OSError, ImportError):
        for fd in opened:
            if fd >= 0:
                os.close(fd)
        raise
    return RankPipes((opened[0], opened[3], opened[-1]), streams, opened[1])


def _set_limit(limits: tuple[int, int]) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
