"""One log file: created without following links, named for its attempt, or renamed if an earlier launch left it.

Logs often lie in /tmp, so directories below the one that the user named must be the user's own.  All renamed files get
the same number, the lowest that none of them has used: worker_0.log.2 and scheduler.log.2 are of one launch, though one
of them may have been empty.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last: FIFOs do not block
_PRIVATE = 0o700
_PUBLIC = 0o777
_TODO = "name a place you can write to"

#: of an OSError that needs more than its own text
_WHY = {
    errno.ELOOP: "a link, and mslaunch does not write through links",
    errno.EEXIST: "not a directory",
    errno.ENXIO: "a FIFO that nobody reads",
}


class File(NamedTuple):
    """The file of a stream."""

    path: str
    base: str  # the directory that the user named; made if it is missing
    where: str  # what an error names
    private: bool = False  # a `base` that is made is for the user alone


def create(file: File) -> int:
    """Create or empty the file; returns a descriptor.

    Raises `LaunchError` if it is a link, or a directory below its base is not the user's own.
    """
    try:
        if file.base:
            os.makedirs(file.base, _PRIVATE if file.private else _PUBLIC, exist_ok=True)
        for folder in _folders(file):
            try:
                os.mkdir(folder)
            except FileExistsError:
                _require_own(folder, file.where)
        return os.open(file.path, FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror)
        raise LaunchError(f"{error.filename or file.path}: {why}", file.where, _TODO) from None


def of_attempt(path: str, attempt: int) -> str:
    """The path for an attempt: worker_0.log, worker_0.attempt-2.log; a device such as /dev/null stays as it is."""
    if attempt == 1 or (os.path.exists(path) and not os.path.isfile(path)):
        return path
    stem, extension = os.path.splitext(path)
    if extension[1:].isdecimal():  # it is a rank's number
        stem, extension = path, ""
    return f"{stem}.attempt-{attempt}{extension}"


def rename_old(files: Sequence[File]) -> None:
    """Rename what an earlier launch has left in these files, and in those of later attempts, to FILE.N.

    Raises `LaunchError`.
    """
    found = [file for file in files if _size(file) >= 0]
    attempt = 2
    while later := [file for file in (_later(file, attempt) for file in files) if _size(file) >= 0]:
        found += later
        attempt += 1
    if not any(map(_size, found)):
        return
    number = _free_number({file.path for file in [*files, *found]})
    for file in found:
        try:
            os.rename(file.path, f"{file.path}.{number}")
        except OSError as error:
            what = f"{file.path} is from an earlier launch and cannot be renamed: {error.strerror}"
            raise LaunchError(what, file.where, "name another place") from None


def _later(file: File, attempt: int) -> File:
    later = of_attempt(file.path, attempt)
    return file._replace(path=later if later != file.path else "")  # "": there is no such file


def _size(file: File) -> int:
    """The size of a regular file in directories of the user; -1 if there is none."""
    try:
        for folder in _folders(file):
            _require_own(folder, file.where)
        found = os.lstat(file.path)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def _free_number(paths: set[str]) -> int:
    """The lowest N for which no PATH.N exists, or is itself one of the paths."""
    found = set(paths)
    for prefix in {path[: path.rfind("/") + 1] for path in paths}:
        try:
            found.update(prefix + name for name in os.listdir(prefix or "."))
        except OSError:  # it will be made
            continue
    used = {number for head, _, number in (path.rpartition(".") for path in found) if head in paths}
    return next(number for number in range(1, len(used) + 2) if str(number) not in used)


def _folders(file: File) -> Iterator[str]:
    """The directories below the base, from the top."""
    folder = file.base
    for name in os.path.dirname(file.path[len(file.base) :]).split("/"):
        if name:
            folder = os.path.join(folder, name)
            yield folder


def _require_own(path: str, where: str) -> None:
    """Raises `LaunchError` unless it is a directory of this user, OSError if it is not there."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise LaunchError(f"{path} exists and is not a directory of yours", where, "name another place")
