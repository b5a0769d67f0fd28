"""The state of a file or a directory, by which one sees that a program gets ahead: newest change, bytes, entries.

A file system may not answer, as one of NFS whose server is gone, so each look is made by a thread and is bounded.  Of a
directory the first `MOST` entries count, those next to its top first; links below it are not followed.
"""

from __future__ import annotations

import os
import stat

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 10_000  #: entries of a directory, with those of directories in it
SECONDS = 5.0  #: for one look


class FileState(NamedTuple):
    """What one look has found; two that are equal mean that nothing has changed."""

    newest: int = 0  # the last modification, of all entries, in ns since the epoch
    size: int = 0  # bytes, of all files together
    entries: int = 0  # 1 for a file; 0: there is none


NOTHING = FileState()  #: of what is not there, or may not be read


def state_of(path: str, seconds: float = SECONDS) -> FileState | None:
    """The state of `path`, a link to it followed; None if that is not known within `seconds`.

    What is not there, or may not be read, has the state NOTHING.
    """
    import threading

    found: list[FileState] = []
    given_up = threading.Event()

    def look() -> None:
        found.append(_look(path, given_up.is_set))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(seconds)
    given_up.set()
    return found[0] if found else None


def _look(path: str, given_up: Callable[[], bool]) -> FileState:
    newest = size = entries = 0
    for status in _statuses(path):
        if entries == MOST or given_up():
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
