"""Folders and files of the registry by descriptor: what was looked at is what is used, whatever is renamed meanwhile.

In /tmp another user can move a directory of his in and out of a name at any moment, so a path proves nothing once it
has been looked at.  A folder is opened once, without following a link, and its owner and mode are asked of the
descriptor; everything below it is reached from there.  A FIFO is never waited for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


def is_private(found: os.stat_result) -> bool:
    """Whether it is a directory of ours that nobody else can enter."""
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def open_private(path: str, above: int | None = None) -> int:
    """A descriptor of a directory of ours that nobody else can enter.  Raises OSError for any other.

    `above`: that of a private one it lies in; then nobody else comes to it, whatever its own mode.
    """
    fd = os.open(path, _FOLDER, dir_fd=above)
    found = os.fstat(fd)
    if not (is_private(found) if above is None else found.st_uid == os.geteuid()):
        os.close(fd)
        raise PermissionError(errno.EPERM, "it is not a directory that you alone can read and write", path)
    return fd


@contextmanager
def private_folder(path: str, above: int | None = None) -> Iterator[int]:
    """The same, until it is left."""
    fd = open_private(path, above)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def job_folder(path: str) -> Iterator[int]:
    """A descriptor of the directory of a job, which lies in a registry.  Raises OSError."""
    registry, name = os.path.split(path)
    with private_folder(registry) as above, private_folder(name, above) as fd:
        yield fd


def read_own(name: str, above: int, most: int) -> bytes:
    """The bytes of a regular file of ours in a folder.  Raises OSError, also if there are more than `most`."""
    fd = os.open(name, _FILE, dir_fd=above)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is not a file of yours", name)
        data = b""
        while len(data) <= most and (more := os.read(fd, most + 1 - len(data))):
            data += more
    finally:
        os.close(fd)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return data


def exists_in(folder: str, name: str) -> bool:
    """Whether the directory of a job has this."""
    try:
        with job_folder(folder) as fd:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def remove_folder(path: str) -> None:
    """Delete the directory of a job with its files; what a link leads to is left alone."""
    registry, name = os.path.split(path)
    try:
        with private_folder(registry) as above:
            with private_folder(name, above) as fd:
                for file in os.listdir(fd):
                    os.unlink(file, dir_fd=fd)
            os.rmdir(name, dir_fd=above)
    except OSError:  # another process deletes it, or has put something there
        pass
