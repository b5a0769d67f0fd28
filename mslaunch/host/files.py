"""Reads of files that the user has named, which may be pipes, as of `<(command)`, FIFOs, terminals, /dev/null.

No agent has to read any, so that this does not travel.  What a shell gives is read as it always was, but only for a
bounded time, and of a bounded size.  Directories and other devices, such as /dev/zero, are refused.  It differs from a
plain read(2) in that signals and limits of time end it.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Wait = Callable[[int, float], bool]  # whether a descriptor can be read within so many seconds

MOST = 16 << 20  #: bytes of a file
#: errno of a file that is not there, or not for this user; with any other one, there may be a text that was not read
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
SECONDS = 60.0  #: until the end must have come
WRITER_SECONDS = 5.0  #: until a FIFO must have a writer
_CHUNK = 1 << 16


def read_text(path: str, wait: Wait | None = None) -> str:
    """The text of a file that the user has named, whose bytes need not be UTF-8.  Raises OSError."""
    return read_bytes(path, wait).decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(
    path: str, wait: Wait | None = None, check: Callable[[os.stat_result], None] | None = None, most: int = MOST
) -> bytes:
    """The at most `most` bytes of a file that the user has named.  Raises OSError, and what `check` raises.

    Of what is no regular file the bytes come until its end, and `wait` waits for them.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(fd)
        if check:
            check(status)
        if stat.S_ISREG(status.st_mode):
            data = b""
            while len(data) <= most and (more := os.read(fd, 1 << 20)):
                data += more
        else:
            data = _read_other(fd, most, wait)
    finally:
        os.close(fd)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB")
    return data


def _read_other(fd: int, most: int, wait: Wait | None = None) -> bytes:
    """What comes until the end, at most `most` bytes and a chunk; `fd` does not block.  Raises OSError."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISCHR(mode) and not os.isatty(fd):
        return _read_null(fd)
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise OSError(errno.EINVAL, "it is neither a file nor a pipe")
    return _read_stream(fd, most, wait or _wait, _is_named(fd))


def _read_null(fd: int) -> bytes:
    """Nothing, of /dev/null."""
    if os.fstat(fd).st_rdev != os.stat(os.devnull).st_rdev:
        raise OSError(errno.EINVAL, "it is a device")
    return b""


def _read_stream(fd: int, most: int, wait: Wait, named: bool) -> bytes:
    deadline = time.monotonic() + SECONDS
    found = bytearray()
    if named and not wait(fd, WRITER_SECONDS):
        raise OSError(errno.ETIMEDOUT, f"it is a FIFO that nobody writes to; waited {WRITER_SECONDS:g} s")
    while len(found) <= most:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            if not wait(fd, max(0.0, deadline - time.monotonic())):
                raise OSError(errno.ETIMEDOUT, f"its end did not come within {SECONDS:g} s") from None
            continue
        if not data:
            break
        found += data
        if time.monotonic() > deadline:  # a writer that is never done, a few bytes at a time
            raise OSError(errno.ETIMEDOUT, f"its end did not come within {SECONDS:g} s")
    return bytes(found)


def _is_named(fd: int) -> bool:
    """Whether it is a FIFO of a file system.  Without a writer an unnamed pipe has ended; a named one waits for it."""
    return stat.S_ISFIFO(os.fstat(fd).st_mode) and not os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")


def _wait(fd: int, seconds: float) -> bool:
    """Signals act as the process has it, and the wait goes on if it has none of that (PEP 475)."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
