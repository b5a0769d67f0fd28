"""Who we are, for whoever started us: --report-pid and --report-uri.

A channel is "-" (standard output), "+" (standard error), or a file, as in mpirun(1).  Of the job it knows the number,
no more.  The surprising thing is the URI: it names the job and cannot be connected to, since a launcher listens on
no port; its first half has the form of Open MPI's, so that a script which cuts the number off before ".0;" works.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.lean import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.model import Request


def announce(request: Request, cwd: str, stdout: int, stderr: Callable[[str], None], jobid: str) -> None:
    """Tell the channels that were asked for; `jobid` is hexadecimal.  Raises `LaunchError` if one cannot be told."""
    pid = os.getpid()
    if request.report_pid is not None:
        _tell("--report-pid", request.report_pid, f"{pid}\n", cwd, stdout, stderr)
    if request.report_uri is not None:
        uri = f"{int(jobid, 16)}.0;mslaunch://{os.uname().nodename}/{pid}\n"
        _tell("--report-uri", request.report_uri, uri, cwd, stdout, stderr)


def _tell(option: str, channel: str, text: str, cwd: str, stdout: int, stderr: Callable[[str], None]) -> None:
    if channel == "+":
        stderr(text)
        return
    path = os.path.join(cwd, channel)
    try:
        fd = stdout if channel == "-" else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, text.encode())
        finally:
            if fd != stdout:
                os.close(fd)
    except OSError as error:
        where = "standard output" if channel == "-" else path
        todo = "give - for standard output, + for standard error, or a file that you can write to"
        raise LaunchError(f"{where}: {error.strerror}", option, todo) from None
