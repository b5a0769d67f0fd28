"""Files that the launcher writes where the user said: opened without following a link, and the user's own.

A file that exists must belong to the user and have no other name: else somebody could have put it there, to read what
is written, or to have another file of the user overwritten.  Character devices, such as /dev/null, may be anybody's.
"""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # FIFOs do not block


def create_own(path: str, flags: int = 0, folder: int | None = None) -> int:
    """Create or empty a file; a relative path counts from the descriptor `folder`.  Raises OSError."""
    try:
        return os.open(path, _FLAGS | flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    except FileExistsError:
        pass
    fd = open_own(path, flags, folder)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, 0)
    return fd


def replace_own(path: str, text: str, new: str) -> None:
    """Write a file as a whole, so that no reader sees half of it: under the name `new` first.  Raises OSError.

    Only a file that `open_own` would open is replaced; a character device is written to, as it is.
    """
    data = text.encode("utf-8", "replace")
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISCHR(found.st_mode):
            _write(open_own(path), data)
            return
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EPERM, "it is no regular file")
        _require_own(found)
    fd = create_own(new)
    try:
        _write(fd, data)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _write(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def open_own(path: str, flags: int = 0, folder: int | None = None) -> int:
    """Open a file that exists, as it is.  Raises OSError, also if it is not the user's own."""
    try:
        fd = os.open(path, _FLAGS | flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a link, and links are not followed") from None
        raise
    try:
        _require_own(os.fstat(fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def _require_own(found: os.stat_result) -> None:
    if stat.S_ISCHR(found.st_mode):
        return
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user")
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise OSError(errno.EPERM, "it has another name, a hard link, and mslaunch does not write through links")
    if stat.S_ISBLK(found.st_mode):
        raise OSError(errno.EPERM, "it is a device")
