"""Staging: the files of --preload-binary and --preload-files, sent to every node before anything is started.

`collect` finds them, and refuses what cannot be sent.  `send_files` sends them over the links, to all nodes at once, in
pieces, each when the path takes it: no file is ever in memory as a whole.  The launching host gets a copy as well, so
that programs find the same files everywhere.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque

from mslaunch.errors import LaunchError, LinkError, UnreachedError, UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.programs import find_program
from mslaunch.host.system_files import OPEN_READ
from mslaunch.launcher.agents.connection import is_about, meaningless
from mslaunch.protocol import control, frames
from mslaunch.runtime.fd_writer import HIGH, LOW

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.runtime.loop import Loop

_CHUNK = 1 << 16
_ROUND = 64  # chunks, after which others have their turn
_TURN = 0.001  # seconds, the shortest time that a loop can wait
_REPORTS = 1.0  # seconds
PATIENCE = 60.0  #: seconds in which a host must have taken something, or it is given up


class StagedFile(NamedTuple):
    """One file to be sent."""

    name: str  # below the session directory
    source: str  # its path here
    mode: int
    stamp: tuple[int, int]  # its size and time of writing when it was found; it must not change until it is sent


# --- what is sent


def collect(request: Request, environ: Mapping[str, str], cwd: str) -> list[StagedFile]:
    """All files that the job's programs need; raises `LaunchError` for one that cannot be sent.

    A name is taken from the launch directory and kept, but for a leading / or .. (as mpirun 4.1.4); of a directory, all
    that is in it is sent.  An executable is found as the ranks would find it here, and sent under its last name.
    """
    files: dict[str, StagedFile] = {}
    for app in request.apps:
        if app.preload_binary:
            search = ":".join(filter(None, (app.path, environ.get("PATH", os.defpath))))
            source = os.path.join(cwd, find_program(app.argv[0], search, cwd))
            _add(files, "--preload-binary", os.path.basename(app.argv[0]), source)
        for name in app.preload_files:
            for source, target in _expand(os.path.join(cwd, name), _target(name)):
                _add(files, "--preload-files", target, source)
    _check_folders(files)
    return list(files.values())


def _check_folders(files: Mapping[str, StagedFile]) -> None:
    for name, file in files.items():
        parent = os.path.dirname(name)
        while parent and parent not in files:
            parent = os.path.dirname(parent)
        if parent:
            what = f"{files[parent].source} and {file.source} would be {parent} and {name} on the hosts"
            raise UsageError(what, "--preload-files", "give one of them another name")


def _target(name: str) -> str:
    parts = os.path.normpath(name).split("/")
    return "/".join(part for part in parts if part not in ("", ".", "..")) or "."


def _expand(source: str, target: str) -> Iterator[tuple[str, str]]:
    if not os.path.isdir(source):
        yield source, target
        return
    for folder, inner, names in os.walk(source, onerror=_refuse, followlinks=True):
        for name in inner:
            _check_link(os.path.join(folder, name))
        below = os.path.relpath(folder, source)
        for name in names:
            yield os.path.join(folder, name), os.path.normpath(os.path.join(target, below, name))


def _refuse(error: OSError) -> None:
    todo = "it must be on this host, and you must be allowed to read it"
    raise UsageError(f"{error.filename} cannot be sent: {error.strerror}", "--preload-files", todo) from None


def _check_link(path: str) -> None:
    """A link to a folder is followed, unless that would never end."""
    if os.path.islink(path):
        leads_to = os.path.realpath(path)
        if os.path.commonpath([leads_to, os.path.realpath(os.path.dirname(path))]) == leads_to:
            what = f"{path} cannot be sent: the link leads to a folder that it is in"
            raise UsageError(what, "--preload-files", "name the files that are needed")


def _add(files: dict[str, StagedFile], option: str, name: str, source: str) -> None:
    before = files.get(name)
    try:
        status = os.stat(source)
        same = before is None or os.path.samestat(status, os.stat(before.source))
    except OSError as error:
        raise UsageError(f"{source} cannot be sent: {error.strerror}", option, "it must be on this host") from None
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{source} cannot be sent: it is no file", option, "files and directories can be sent")
    if not os.access(source, os.R_OK):
        raise UsageError(f"{source} cannot be sent: it may not be read", option, f"see ls -l {source}")
    if before is None:
        files[name] = StagedFile(name, source, stat.S_IMODE(status.st_mode), _stamp(status))
    elif not same:
        todo = "give one of them another name"
        raise UsageError(f"{before.source} and {source} would both be {name} on the hosts", option, todo)


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


# --- sending


def send_files(
    loop: Loop,
    connections: Sequence[AgentConnection],
    files: Sequence[StagedFile],
    wait: Callable[[Callable[[], bool]], None],
    report: Callable[[int, int, int], None] = lambda *progress: None,
) -> None:
    """Send all files to all agents, and wait until they are stored.

    Raises `LaunchError` if one of them is not, `UnreachedError` if an agent is lost.
    `wait(until)` runs the loop until `until()` is true; what it raises goes through.
    `report` gets, from a second on, how many bytes have been sent, how many there are, and how many hosts.
    """
    transfers = [_Transfer(loop, connection, files, len(connections)) for connection in connections]
    size = len(connections) * sum(file.stamp[0] for file in files)

    def tell() -> None:
        due.append(loop.after(_REPORTS, tell))
        report(min(size, sum(transfer.sent for transfer in transfers)), size, len(connections))

    due = deque([loop.after(_REPORTS, tell)], 1)
    try:
        wait(lambda: all(transfer.done for transfer in transfers))
    finally:
        due.pop().cancel()
        for transfer in transfers:
            transfer.close()


class _Transfer:
    """The files that are being sent to one node."""

    def __init__(self, loop: Loop, connection: AgentConnection, files: Sequence[StagedFile], hosts: int) -> None:
        """`hosts`: how many get them."""
        self._loop = loop
        self._connection = connection
        self._hosts = hosts
        self._left = len(files)
        self._frames = _frames(files)
        self._filling = False
        connection.attach(self._on_end, self._on_frame, self._on_sent)
        self._timer = loop.after(0, self._fill)
        self._moved = time.monotonic()
        self.sent = 0  #: bytes, with the heads of frames
        self._limit = loop.after(PATIENCE, self._look_at_clock)

    @property
    def done(self) -> bool:
        return not self._left

    def close(self) -> None:
        self._timer.cancel()
        self._limit.cancel()
        self._frames.close()
        self._connection.detach()

    def _fill(self) -> None:
        """Send while there is room.  `send` may call `_on_sent` at once, which must not start this again."""
        if self._filling:
            return
        self._filling = True
        for _ in range(_ROUND):
            frame = next(self._frames, None) if self._connection.pending < HIGH else None
            if frame is None:
                break
            self._connection.send(frame)
        else:
            self._timer.cancel()
            self._timer = self._loop.after(_TURN, self._fill)
        self._filling = False

    def _on_sent(self, size: int) -> None:
        self._moved = time.monotonic()
        self.sent += size
        if self._connection.pending < LOW:
            self._fill()

    def _look_at_clock(self) -> None:
        left = 1.0 if self.done else self._moved + PATIENCE - time.monotonic()
        if left <= 0:
            what = f"it took nothing for {PATIENCE:g} seconds while files were sent to it"
            self._on_end(LinkError(what, self._connection.node.name, "is the disk of its TMPDIR slow or stuck?"))
        self._limit = self._loop.after(left, self._look_at_clock)

    def _on_frame(self, frame: frames.Frame) -> None:
        if frame.kind != frames.STORED or not is_about(frame, here=False) or not self._left:
            raise meaningless(frame)
        error, todo = control.unpack_record(control.Stored, frame.payload)
        if error:
            from mslaunch.launcher.messages.host_words import error_of

            raise LaunchError(*error_of(error, todo, self._connection.node))
        self._left -= 1
        self._moved = time.monotonic()

    def _on_end(self, error: LinkError | None) -> None:
        name = self._connection.node.name
        raise UnreachedError({name: error or LinkError("its agent ended while files were sent", name)}, self._hosts)


def _frames(files: Sequence[StagedFile]) -> Generator[bytes, None, None]:
    for file in files:
        yield frames.encode(frames.FILE, payload=control.pack_record(control.FileHead(file.name, file.mode)))
        try:
            with open(os.open(file.source, OPEN_READ), "rb", buffering=0) as source:
                while True:
                    _check_same(file, os.fstat(source.fileno()))
                    data = source.read(_CHUNK)
                    _check_same(file, os.fstat(source.fileno()))
                    yield frames.encode(frames.DATA, payload=data)
                    if not data:
                        break
        except OSError as error:
            raise LaunchError(f"{file.source} cannot be sent: {error.strerror}") from None


def _check_same(file: StagedFile, status: os.stat_result) -> None:
    """Raise if the file has changed: hosts read it at different times, and all must get the same."""
    if _stamp(status) != file.stamp:
        what = f"{file.source} was written to while it was being sent"
        raise LaunchError(what, todo="nothing was started; launch again when it is finished")
