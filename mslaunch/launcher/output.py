"""Output: what ranks print goes to the terminal and into one file a stream, in the order in which it came.

The layout of the files is Open MPI 4.1's (mpirun(1), --output-filename): DIR/1/rank.N/stdout and stderr, N padded to
the digits of the number of ranks.  It knows neither frames nor how a rank ends.  Bytes pass unchanged unless a
prefix was asked for; then they are cut into lines here, and only here.  The surprising thing: files are opened
without following links and only in directories that are the user's own, since /tmp is a favourite place for logs.
"""

from __future__ import annotations

import os
import stat

from mslaunch.errors import LaunchError, printable
from mslaunch.launcher.terminal import Terminal
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import SERVICE, OutputPolicy
from mslaunch.wire.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.wire.loop import Loop

_NAMES = {STDOUT: "stdout", STDERR: "stderr"}
_TAIL = 4096
_KEPT_OPEN = 256
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last: never wait for a FIFO


class Output:
    """Where all bytes go.  `notice` tells the user something, once."""

    def __init__(
        self, policy: OutputPolicy, ranks: int, terminals: dict[int, Terminal], notice: Callable[[str], None]
    ) -> None:
        self._policy = policy
        self._terminals = terminals
        self._copy = policy.copy
        self.logs = Logs(policy, ranks, notice) if policy.directory is not None else None
        self._prefix = bool(policy.tag or policy.timestamp)
        self._partial: dict[tuple[int, int], bytes] = {}
        self._tails: dict[int, bytes] = {}

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """`data` was printed by `rank` (SERVICE: the scheduler) on STDOUT or STDERR; b"" ends the stream."""
        if kind == STDERR or self._policy.merge or rank == SERVICE:
            self._tails[rank] = (self._tails.get(rank, b"") + data[-_TAIL:])[-_TAIL:]
        if self._prefix and rank != SERVICE:
            data = self._prefixed(kind, rank, data)
        if not data:
            return
        if self.logs:
            self.logs.write(kind, rank, data)
        if self._copy and rank != SERVICE:
            self._terminals[kind].send(data)

    @property
    def pending(self) -> int:
        """Bytes that a terminal has not taken yet."""
        return max((terminal.pending for terminal in self._terminals.values()), default=0)

    def finish(self) -> None:
        """Whatever line is unfinished now will stay so: a lost rank cannot end its own."""
        for kind, rank in list(self._partial):
            self.write(kind, rank, b"")

    def abandon(self) -> None:
        """Show nothing more on the terminals; files go on."""
        self._copy = False
        for terminal in self._terminals.values():
            terminal.drop()

    def on_progress(self, written: Callable[[], None]) -> None:
        """Call `written` whenever a terminal has taken bytes."""
        for terminal in self._terminals.values():
            terminal.progress = written

    def log_path(self, rank: int) -> str | None:
        """The file that tells most about a rank; None if there is none."""
        return (self.logs.path(STDERR, rank) or self.logs.path(STDOUT, rank)) if self.logs else None

    def tail(self, rank: int, lines: int = 20) -> list[str]:
        """The last lines that a rank wrote on stderr."""
        text = self._tails.get(rank, b"").decode("utf-8", "replace")
        kept = text.splitlines()
        if len(text) >= _TAIL and len(kept) > lines:
            kept = kept[1:]  # the first may be half a line
        return [printable(line) for line in kept[-lines:]]

    def _prefixed(self, kind: int, rank: int, data: bytes) -> bytes:
        """Whole lines with their prefix; a line without its end waits for it, up to 64 KiB or the stream's end."""
        before = self._partial.pop((kind, rank), b"")
        lines = (before + data).split(b"\n")
        rest = lines.pop()
        prefix = self._make_prefix(kind, rank)
        if rest and (not data or len(rest) > 1 << 16):
            return b"".join([*(prefix + line + b"\n" for line in lines), prefix + rest])
        if rest:
            self._partial[kind, rank] = rest
        return b"".join([prefix + line + b"\n" for line in lines])

    def _make_prefix(self, kind: int, rank: int) -> bytes:
        stamp = ""
        if self._policy.timestamp:
            import time

            stamp = time.strftime("%a %b %d %H:%M:%S %Y")
        tag = f"[1,{rank}]" if self._policy.tag else ""
        return f"{stamp}{tag}<{_NAMES[kind]}>:".encode()

    def close(self) -> bool:
        """Close files and terminals; True if every byte is where it was asked for."""
        kept = self.logs.close() if self.logs else True
        self._terminals[STDOUT].close()
        return kept and not any(terminal.failed for terminal in self._terminals.values())


class Logs:
    """One file for each stream of each rank."""

    def __init__(self, policy: OutputPolicy, ranks: int, notice: Callable[[str], None]) -> None:
        self._merge = policy.merge
        self._jobid = policy.jobid
        self._digits = len(str(ranks))
        self._notice = notice
        self._open: dict[str, int] = {}
        self._failed: set[str] = set()
        assert policy.directory is not None
        self.top = os.path.join(policy.directory, "1") if policy.jobid else policy.directory
        os.makedirs(policy.directory, exist_ok=True)
        try:
            for rank in range(ranks):
                for kind in (STDOUT,) if self._merge else (STDOUT, STDERR):
                    self._create(str(self.path(kind, rank)))
        except (OSError, LaunchError):
            self.close()
            raise

    def path(self, kind: int, rank: int) -> str | None:
        """The file of a stream; None if stderr goes where stdout goes and `kind` is stderr."""
        if self._merge and kind == STDERR:
            return None
        name = "scheduler" if rank == SERVICE else f"rank.{rank:0{self._digits}d}"
        return os.path.join(self.top, name, _NAMES[kind])

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """Append; a file that cannot be written is named once and then left alone."""
        path = self.path(STDOUT if self._merge else kind, rank)
        assert path is not None
        if path in self._failed:
            return
        try:
            fd = self._fd(path)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        except OSError as error:
            self._failed.add(path)
            self._notice(f"{path}: {error.strerror}; what follows is not kept there")

    def _fd(self, path: str) -> int:
        fd = self._open.get(path)
        if fd is None:
            if not os.path.exists(path):
                fd = self._create(path)
            else:
                fd = os.open(path, _FLAGS)
                self._keep(path, fd)
        return fd

    def _keep(self, path: str, fd: int) -> None:
        if len(self._open) >= _KEPT_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[path] = fd

    def _create(self, path: str) -> int:
        folder = os.path.dirname(path)
        for place in (self.top, folder) if self._jobid else (folder,):
            _own_directory(place)
        fd = os.open(path, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)
        self._keep(path, fd)
        return fd

    def close(self) -> bool:
        """True if nothing was lost."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        return not self._failed


def _own_directory(path: str) -> None:
    """Make `path`, or see that it is a directory of this user."""
    try:
        os.mkdir(path)
        return
    except FileExistsError:
        found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise LaunchError(
            f"{path} is there, and is not a directory of yours", "--output-filename", "name another directory"
        )


def open_output(
    policy: OutputPolicy, ranks: int, loop: Loop, fds: dict[int, int], stderr: Terminal, notice: Callable[[str], None]
) -> Output:
    """Make directories, files and terminals; `fds` has the descriptor for STDOUT, `stderr` is shared with the launcher.

    Raises `LaunchError` if the directory cannot be had; nothing was started then.
    """
    stdout = Terminal(loop, fds[STDOUT], "standard output", notice)
    try:
        return Output(policy, ranks, {STDOUT: stdout, STDERR: stderr}, notice)
    except LaunchError:
        stdout.close()
        raise
    except OSError as error:
        stdout.close()
        where = error.filename or policy.directory
        raise LaunchError(
            f"{where}: {error.strerror}", "--output-filename", "name a directory you can write to"
        ) from None
