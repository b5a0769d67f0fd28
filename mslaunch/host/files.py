"""Reads of files and directories; what cannot be read is empty, but `read_bytes` and `read_text` raise OSError."""

from __future__ import annotations

import os
import stat
from errno import EFBIG, EINVAL, ETIMEDOUT

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.host.piped_files import Wait

MOST = 16 << 20  #: bytes of a file that the user has named
NO_TEXT = (EINVAL, EFBIG, ETIMEDOUT)  #: errno of what `read_bytes` itself refuses: a device, a large file, a FIFO


def head_of(path: str, size: int, offset: int = 0) -> bytes:
    """At most `size` bytes of a file.  Nothing of what is no regular file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a FIFO takes its writer from the program that it is for
            return b""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(fd, size, offset)  # fails for what is no file
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(fd)


def listed(folder: str) -> list[str]:
    """The names in a directory."""
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []


def read_text(path: str, wait: Wait | None = None) -> str:
    """The text of a file that the user has named, whose bytes need not be UTF-8.  Raises OSError."""
    return read_bytes(path, wait).decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: str, wait: Wait | None = None, check: Callable[[os.stat_result], None] | None = None) -> bytes:
    """The at most `MOST` bytes of a file that the user has named.  Raises OSError, and what `check` raises.

    `piped_files` reads what is no regular file, and says what `wait` is.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(fd)
        if check:
            check(status)
        if stat.S_ISREG(status.st_mode):
            data = b""
            while len(data) <= MOST and (more := os.read(fd, 1 << 20)):
                data += more
        else:
            from mslaunch.host.piped_files import read

            data = read(fd, MOST, wait)
    finally:
        os.close(fd)
    if len(data) > MOST:
        raise OSError(EFBIG, f"it is larger than {MOST >> 20} MiB")
    return data
