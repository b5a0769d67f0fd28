"""Reads of files and directories; what cannot be read is empty."""

from __future__ import annotations

import os
import stat


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
