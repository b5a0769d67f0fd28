"""--logs: the log files of a job, of all ranks or of some, as they are or as they grow (-f).

Where others can write, as in /tmp, they may have put files, links and folders of such names.  So only our own files
are shown, in our own folders, and of ranks that the job has.  Below the folder that the user named no link is followed.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from mslaunch.cli.actions.job_commands import find_job
from mslaunch.cli.parser.options import Show
from mslaunch.errors import LaunchError, UsageError, printable
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.system_files import OPEN_READ
from mslaunch.jobs.job_registry import JobEntry

if TYPE_CHECKING:
    from typing import IO
from mslaunch.plan.number_ranges import bounds

_USAGE = "write --logs JOB [-r 0,2-3] [-f]"
_POLL = 0.2  # seconds between looks at files that grow
_LOOK = 1.0  # seconds between looks for new ones
_RANKS = 1 << 20
_BLOCK = 1 << 16  # bytes that are read at once, and of a line that is not cut
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: letters of `log_layouts.Layout` -> what they are in the name of a file; others match anything
_LETTERS = {"%w": r"(?P<world>\d+)", "%d": r"rank\.0*(?P<rank>\d+)", "%r": r"0*(?P<rank>\d+)", "%n": r"0*(?P<rank>\d+)",
            "%m": r"0*(?P<rank>\d+)", "%o": r"rank\.0*(?P<rank>\d+)", "%%": "%"}  # fmt: skip


class LogFile(NamedTuple):
    """A log file: a folder that the user has named, and the path below it."""

    base: str
    below: str

    @property
    def path(self) -> str:
        """Its name for users and for the system."""
        return os.path.join(self.base, self.below)


def logs(words: Sequence[str], environ: Mapping[str, str]) -> Show:
    """Print log files; each begins with a line that names it if there are several.  Raises `LaunchError`."""
    job, ranks, follow = _read(words)
    entry = find_job("--logs", job, environ)
    if not entry.facts.get("layouts"):
        if "foreground" in entry.facts:
            todo = "start it with --output-filename DIR; its output is where the command was started"
            raise LaunchError("it has no log files", f"job {entry.number}", todo)
        paths = {LogFile(*os.path.split(entry.log)): ""}  # output of its ranks goes there
    else:
        paths = _paths(entry, ranks)
    if not paths and not follow:
        raise LaunchError("there are no log files of these ranks", f"job {entry.number}", f"look in {_folder(entry)}")
    try:
        _follow(entry, ranks, paths) if follow else _print(paths)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    return Show("", 0)


def _read(words: Sequence[str]) -> tuple[list[str], set[int] | None, bool]:
    """The job, the ranks (None: all), and whether to follow."""
    jobs: list[str] = []
    ranks: set[int] | None = None
    follow, rest = False, list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-f", "--follow"):
            follow = True
        elif word in ("-r", "--ranks"):
            if not rest:
                raise UsageError("its value is missing", word, _USAGE)
            ranks = _numbers(rest.pop(0), word)
        elif word.startswith("-"):
            raise UsageError(f"unknown option {word!r}", "--logs", _USAGE)
        else:
            jobs.append(word)
    return jobs, ranks, follow


def _numbers(text: str, option: str) -> set[int]:
    """`0,2-3`."""
    numbers: set[int] = set()
    for piece in text.split(","):
        found = bounds(piece)
        if found is None or found[1] - found[0] > _RANKS:
            raise UsageError(f"expected numbers of ranks, got {text!r}", option, _USAGE)
        numbers.update(range(found[0], found[1] + 1))
    return numbers


def _folder(entry: JobEntry) -> str:
    return str(entry.facts.get("logs") or entry.folder)


def _paths(entry: JobEntry, ranks: set[int] | None) -> dict[LogFile, str]:
    """The files that are there, in the order of ranks, and what to call them."""
    import glob
    import re

    found: list[tuple[int, LogFile]] = []
    end = entry.facts["ranks"] if entry.facts.get("whole") else None  # of a share of a job the first one is not known
    for base, *patterns in entry.facts["layouts"]:
        for pattern in filter(None, patterns):
            whole = re.compile(_expression(pattern))
            for path in glob.iglob(os.path.join(glob.escape(base), _wildcards(pattern))):
                file = LogFile(base, os.path.relpath(path, base))
                match = whole.fullmatch(file.below)
                if match and _is_own_file(path):
                    numbers = match.groupdict()
                    rank = int(numbers.get("rank") or -1)
                    spawned = int(numbers.get("world") or 1) > 1
                    if (ranks is None or rank in ranks) and (spawned or end is None or rank < end):
                        found.append((rank, file))
    return {file: f"{rank}" if rank >= 0 else "" for rank, file in sorted(set(found))}


def _is_own_file(path: str) -> bool:
    """Whether it is a regular file of ours: a rank may have put a FIFO there, and another user anything."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _wildcards(pattern: str) -> str:
    import glob
    import re

    return "".join("*" if at % 2 else glob.escape(part) for at, part in enumerate(re.split(r"(%.)", pattern)))


def _expression(pattern: str) -> str:
    """A regular expression for the files of a pattern; the first letter that has the number of a rank counts."""
    import re

    made, named = "", False
    for at, part in enumerate(re.split(r"(%.)", pattern)):
        text = _LETTERS.get(part, r"[^/]*") if at % 2 else re.escape(part)
        if "?P<rank>" in text and named:
            text = r"[^/]*"
        named = named or "?P<rank>" in text
        made += text
    return made


def _print(paths: Mapping[LogFile, str]) -> None:
    kept = [file for file in paths if _size(file)] or list(paths)[:1]
    for file in kept:
        if len(kept) > 1:
            sys.stdout.buffer.write(f"==> {printable(file.path)} <==\n".encode())
        with _opened(file) as opened:
            while data := opened.read(_BLOCK):
                sys.stdout.buffer.write(data)
    sys.stdout.flush()


def _size(file: LogFile) -> int:
    try:
        return os.lstat(file.path).st_size
    except OSError:  # it was removed just now; or else the message comes when it is opened
        return 0


def _opened(file: LogFile) -> IO[bytes]:
    """A log file; an empty one if it is not there, or if something else is in its place."""
    try:
        fd = _open_own(file)
    except (FileNotFoundError, NotADirectoryError):
        fd = os.open(os.devnull, OPEN_READ)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EPERM, errno.ENXIO):  # a link, another user's, a socket
            raise LaunchError(f"the log file cannot be read: {error.strerror}", file.path) from None
        fd = os.open(os.devnull, OPEN_READ)
    return open(fd, "rb", 0)


def _open_own(file: LogFile) -> int:
    """A regular file of ours, in folders of ours below the one that was named.  Raises OSError."""
    *folders, name = file.below.split("/")
    above = os.open(file.base or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=above)
            os.close(above)
            above = below
            _require_own(os.fstat(above), stat.S_ISDIR)
        fd = os.open(name, OPEN_READ | os.O_NOFOLLOW, dir_fd=above)
    finally:
        os.close(above)
    try:
        _require_own(os.fstat(fd), stat.S_ISREG)
    except OSError:
        os.close(fd)
        raise
    return fd


def _require_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    if found.st_uid != os.geteuid() or not is_kind(found.st_mode):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _follow(entry: JobEntry, ranks: set[int] | None, paths: dict[LogFile, str]) -> None:
    """Print what is added, line by line, with the rank before each if there may be several; until the job has ended."""
    tails: dict[LogFile, Tail] = {}
    prefixed = ranks is None or len(ranks) > 1
    returned: Tail | None = None  # whose progress bar the cursor stands on
    over, looked = False, time.monotonic()
    while True:
        if entry.facts.get("layouts") and (over or time.monotonic() - looked >= _LOOK):
            paths, looked = _paths(entry, ranks), time.monotonic()
        for file, rank in paths.items():
            if file not in tails:
                tails[file] = Tail(file, f"[{rank}] ".encode() if prefixed and rank else b"")
        for tail in tails.values():
            for piece in tail.pieces(over):
                if returned not in (None, tail):
                    sys.stdout.buffer.write(b"\n")
                sys.stdout.buffer.write(piece)
                returned = tail if piece.endswith(b"\r") else None
        sys.stdout.flush()
        if over:
            return
        over = not entry.lasts
        if not over:
            time.sleep(_POLL)
            entry.reload()


class Tail:
    """A file that grows; it is open only while it is read, for a job may have more of them than can be open."""

    def __init__(self, log: LogFile, prefix: bytes) -> None:
        self._log = log
        self._prefix = prefix
        self._file = (0, 0)  # its device and inode
        self._at = 0
        self._part = b""  # of a line without an end
        import re

        self._ends = re.compile(rb"(\n|\r(?=[^\r\n]))")  # the last \r of some, but not that of \r\n

    def pieces(self, last: bool) -> Iterator[bytes]:
        """What was added: lines, states of progress bars, parts of long lines; with `last` also one without an end."""
        for data in self._added():
            *found, rest = self._ends.split(self._part + data)
            for text, end in zip(found[::2], found[1::2]):
                if text or end == b"\n":  # a bar may begin with \r
                    yield from self._cut(text, end)
            shown = max(0, len(rest) - 1) // _BLOCK * _BLOCK
            if shown:
                yield from self._cut(rest[:shown], b"\n")
            self._part = rest[shown:]
        if last and self._part:
            yield self._prefix + self._part + b"\n"
            self._part = b""

    def _cut(self, text: bytes, end: bytes) -> Iterator[bytes]:
        for at in range(0, max(len(text), 1), _BLOCK):
            piece = text[at : at + _BLOCK]
            yield self._prefix + piece + (b"\n" if at + _BLOCK < len(text) else end)

    def _added(self) -> Iterator[bytes]:
        """What is there beyond what has been read, as large as it is now; of another file at the path, all."""
        try:
            found = os.lstat(self._log.path)
        except OSError:  # it was removed
            return
        file = found.st_dev, found.st_ino
        if file != self._file or found.st_size < self._at:
            self._file, self._at = file, 0
        if found.st_size == self._at:
            return
        with _opened(self._log) as opened:
            opened.seek(self._at)
            while self._at < found.st_size and (data := opened.read(min(_BLOCK, found.st_size - self._at))):
                self._at += len(data)
                yield data
