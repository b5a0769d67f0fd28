"""--report-pid and --report-uri: the launcher's process id, or a URI of the job, in a file or on a standard stream.

A channel is "-" (standard output), "+" (standard error), or a file, as in mpirun(1).  Nothing listens at the URI; its
first half has the form of Open MPI's, so that scripts which cut the number off before ".0;" work.  It is no observer: a
channel that cannot be written refuses the launch.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.request import Request
    from mslaunch.runtime.loop import Loop

_LOOK_AGAIN = 0.01  #: seconds; the kernel has no event for a FIFO that gets a reader


def announce(
    request: Request,
    cwd: str,
    stdout: int,
    say: Callable[[str], None],
    jobid: str,
    loop: Loop,
    wait: Callable[[Callable[[], bool]], None],
) -> None:
    """Write to the channels that were asked for; `jobid` is hexadecimal, `say` writes to standard error.

    `wait(until)` runs the loop while a FIFO has no reader, and may raise.  Raises `LaunchError`.
    """
    pid = os.getpid()
    uri = f"{int(jobid, 16)}.0;mslaunch://{os.uname().nodename}/{pid}"
    for option, channel, text in (
        ("--report-pid", request.report_pid, f"{pid}\n"),
        ("--report-uri", request.report_uri, f"{uri}\n"),
    ):
        if channel == "+":
            say(text)
        elif channel is not None:
            path = "" if channel == "-" else os.path.join(cwd, channel)
            try:
                fd = _open(path, loop, wait) if path else stdout
                try:
                    os.write(fd, text.encode())
                finally:
                    if path:
                        os.close(fd)
            except OSError as error:
                todo = "give - for standard output, + for standard error, or a file that you can write to"
                raise LaunchError(f"{path or 'standard output'}: {error.strerror}", option, todo) from None


def _open(path: str, loop: Loop, wait: Callable[[Callable[[], bool]], None]) -> int:
    """A descriptor for `path`, emptied.  Raises OSError.  Like a shell's `>`, it waits for the reader of a FIFO."""
    from mslaunch.launcher.stdio.own_files import create_own

    number = _descriptor(path)
    if number is not None:
        return os.dup(number)
    opened: list[int] = []

    def attempt() -> None:
        try:
            opened.append(create_own(path))
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "a link, and mslaunch does not write through links") from None
            if error.errno != errno.ENXIO:
                raise
            found = os.lstat(path)
            if not stat.S_ISFIFO(found.st_mode):
                raise
            if found.st_uid != os.geteuid():  # who might never read
                raise OSError(errno.EPERM, "it belongs to another user") from None
            loop.after(_LOOK_AGAIN, attempt)

    attempt()
    wait(lambda: bool(opened))
    return opened[0]


def _descriptor(path: str) -> int | None:
    """The descriptor that /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N mean: links, but the shell's own."""
    named = {"/dev/stdout": 1, "/dev/stderr": 2}.get(path)
    folder, _, number = path.rpartition("/")
    if named is None and folder in ("/dev/fd", "/proc/self/fd") and number.isascii() and number.isdigit():
        return int(number[:9])
    return named
