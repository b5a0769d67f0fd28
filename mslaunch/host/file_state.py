"""The state of a file or a directory, by which one sees that a program gets ahead: newest change, bytes, entries.

A file system may not answer, as one of NFS whose server is gone, so each look is made by a thread and is bounded.  Of a
directory the first `MOST` entries count, those next to its top first; links below it are not followed.
"""

from __future__ import annotations

import os
import stat
import time

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 10_000  #: entries of a directory, with those of directories in it
SECONDS = 5.0  #: for one look
LOOK = "progress-file"  #: the name of the threads that look


class FileState(NamedTuple):
    """What one look has found; two that are equal mean that nothing has changed."""

    newest: int = 0  # the last modification, of all entries, in ns since the epoch
    size: int = 0  # bytes, of all files together
    entries: int = 0  # 1 for a file; 0: there is none


NOTHING = FileState()  #: of what is not there, or may not be read


class FileLook:
    """A look at `path`, a link to it followed, that a thread begins now; what is not there has the state NOTHING."""

    def __init__(self, path: str, seconds: float = SECONDS) -> None:
        import threading

        self.state: FileState | None = None  #: None as well if it was not known within `seconds`
        self.over = False  #: perhaps never
        self._path = path
        self._until = time.monotonic() + seconds
        self._thread = threading.Thread(target=self._run, name=LOOK, daemon=True)
        self._thread.start()

    def wait(self) -> FileState | None:
        """The state, as soon as it is known, or the time is over."""
        self._thread.join(max(self._until - time.monotonic(), 0.0))
        return self.state

    def _run(self) -> None:
        self.state = _look(self._path, self._until)
        self.over = True


def state_of(path: str, seconds: float = SECONDS) -> FileState | None:
    """The state of `path`; None if that is not known within `seconds`."""
    return FileLook(path, seconds).wait()


def _look(path: str, until: float) -> FileState | None:
    newest = size = entries = 0
    for status in _statuses(path):
        if time.monotonic() > until:
            return None
        if entries == MOST:
            break
        newest = max(newest, status.st_mtime_ns)
        size += status.st_size if stat.S_ISREG(status.st_mode) else 0
        entries += 1
    return FileState(newest, size, entries)


def _statuses(path: str) -> Iterator[os.stat_result]:
    """Of `path`, then of what is below it, level by level; what vanishes meanwhile is left out."""
    try:
        top = os.stat(path)
    except (OSError, ValueError):
        return
    yield top
    level = [path] if stat.S_ISDIR(top.st_mode) else []
    while level:
        below = []
        for folder in level:
            for entry in _entries(folder):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield status
                if stat.S_ISDIR(status.st_mode):
                    below.append(entry.path)
        level = below


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return
