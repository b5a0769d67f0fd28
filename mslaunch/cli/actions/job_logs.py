"""--logs: the log files of a job, of all ranks or of some, as they are or as they grow (-f)."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from mslaunch.cli.actions.job_commands import find_job
from mslaunch.cli.parser.options import Show
from mslaunch.errors import LaunchError, UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.jobs.job_registry import JobEntry

if TYPE_CHECKING:
    from typing import IO
from mslaunch.plan.number_ranges import bounds

_USAGE = "write --logs JOB [-r 0,2-3] [-f]"
_POLL = 0.2  # seconds between looks at files that grow
_LOOK = 1.0  # seconds between looks for new ones
_RANKS = 1 << 20
_BLOCK = 1 << 16  # bytes that are read at once, and of a line that is not cut
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: letters of `log_layouts.Layout` -> what they are in the name of a file; others match anything
_LETTERS = {"%w": r"\d+", "%d": r"rank\.0*(?P<rank>\d+)", "%r": r"0*(?P<rank>\d+)", "%n": r"0*(?P<rank>\d+)",
            "%m": r"0*(?P<rank>\d+)", "%o": r"rank\.0*(?P<rank>\d+)", "%%": "%"}  # fmt: skip


def logs(words: Sequence[str], environ: Mapping[str, str]) -> Show:
    """Print log files; each begins with a line that names it if there are several.  Raises `LaunchError`."""
    job, ranks, follow = _read(words)
    entry = find_job("--logs", job, environ)
    if not entry.facts.get("layouts"):
        if "foreground" in entry.facts:
            todo = "start it with --output-filename DIR; its output is where the command was started"
            raise LaunchError("it has no log files", f"job {entry.number}", todo)
        paths = {entry.log: ""}  # output of its ranks goes there
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


def _paths(entry: JobEntry, ranks: set[int] | None) -> dict[str, str]:
    """The files that are there, in the order of ranks, and what to call them."""
    import glob
    import re

    found: list[tuple[int, str]] = []
    for base, *patterns in entry.facts["layouts"]:
        for pattern in filter(None, patterns):
            whole = re.compile(_expression(pattern))
            for path in glob.iglob(os.path.join(glob.escape(base), _wildcards(pattern))):
                match = whole.fullmatch(os.path.relpath(path, base))
                if match and os.path.isfile(path):  # a rank may have put a FIFO there
                    rank = int(match.groupdict().get("rank") or -1)
                    if ranks is None or rank in ranks:
                        found.append((rank, path))
    return {path: f"{rank}" if rank >= 0 else "" for rank, path in sorted(set(found))}


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


def _print(paths: Mapping[str, str]) -> None:
    kept = [path for path in paths if _size(path)] or list(paths)[:1]
    for path in kept:
        if len(kept) > 1:
            sys.stdout.buffer.write(b"==> " + os.fsencode(path) + b" <==\n")
        with _opened(path) as file:
            while data := file.read(_BLOCK):
                sys.stdout.buffer.write(data)
    sys.stdout.flush()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # it was removed just now; or else the message comes when it is opened
        return 0


def _opened(path: str) -> IO[bytes]:
    """A log file; an empty one if it is not there, or if a rank has put something else in its place."""
    try:
        fd = os.open(path, _OPEN)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            fd = os.open(os.devnull, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        fd = os.open(os.devnull, _OPEN)
    except OSError as error:
        raise LaunchError(f"the log file cannot be read: {error.strerror}", path) from None
    return open(fd, "rb", 0)


def _follow(entry: JobEntry, ranks: set[int] | None, paths: dict[str, str]) -> None:
    """Print what is added, line by line, with the rank before each if there may be several; until the job has ended."""
    tails: dict[str, Tail] = {}
    prefixed = ranks is None or len(ranks) > 1
    returned: Tail | None = None  # whose progress bar the cursor stands on
    over, looked = False, time.monotonic()
    while True:
        if entry.facts.get("layouts") and (over or time.monotonic() - looked >= _LOOK):
            paths, looked = _paths(entry, ranks), time.monotonic()
        for path, rank in paths.items():
            if path not in tails:
                tails[path] = Tail(path, f"[{rank}] ".encode() if prefixed and rank else b"")
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

    def __init__(self, path: str, prefix: bytes) -> None:
        self._path = path
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
            found = os.stat(self._path)
        except OSError:  # it was removed
            return
        file = found.st_dev, found.st_ino
        if file != self._file or found.st_size < self._at:
            self._file, self._at = file, 0
        if found.st_size == self._at:
            return
        with _opened(self._path) as opened:
            opened.seek(self._at)
            while self._at < found.st_size and (data := opened.read(min(_BLOCK, found.st_size - self._at))):
                self._at += len(data)
                yield data
