"""Where the launcher would write log files of ranks: what keeps it from that, on this host."""

from __future__ import annotations

import os
import stat

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.preflight.check_records import Finding, HostReport
from mslaunch.preflight.compare_hosts import HERE
from mslaunch.preflight.host_findings import full_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mslaunch.datamodel.request import OutputPolicy

_FULL = 100 << 20  # bytes


def log_findings(output: OutputPolicy, cwd: str) -> Iterator[Finding]:
    """What is wrong with the directories that options name, each once."""
    from mslaunch.launcher.stdio.log_layouts import layouts

    try:
        named = {row.base: row.where for row in reversed(layouts(output))}
    except UsageError as error:
        yield Finding((HERE,), "logs", f"{error.where}: {error.what}", tuple(error.todo.splitlines()))
        return
    for base, where in named.items():
        folder, why = _nearest(os.path.join(cwd, base))
        try:
            if not why:
                _try(folder)
                found = os.statvfs(folder)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            what = f"{where}: nothing can be written in {folder}: {why}"
            yield Finding((HERE,), "logs", what, (_shown(folder), "or name another directory"))
        elif found.f_blocks and found.f_bavail * found.f_frsize < _FULL:
            free = found.f_bavail * found.f_frsize
            what, command = full_disk(HostReport(Node(HERE, None, "", local=True)), folder, free)
            yield Finding((HERE,), "logs", what, (command,))


def _nearest(path: str) -> tuple[str, str]:
    """The directory in which the launch would begin to make what is missing of a path; and why it cannot, or ""."""
    while True:
        try:
            found = os.stat(path)
            return path, "" if stat.S_ISDIR(found.st_mode) else "it is no directory"
        except (FileNotFoundError, NotADirectoryError):
            if os.path.islink(path):
                return path, "it is a link that leads nowhere"
            above = os.path.dirname(path)
            if above == path:
                return path, "it does not exist"
            path = above
        except OSError as error:
            return path, error.strerror or str(error)


def _try(folder: str) -> None:
    """Make something there, and remove it: what is allowed, not even root knows before.  Raises OSError."""
    name = os.path.join(folder, f".mslaunch-check-{os.getpid()}")
    try:
        os.mkdir(name, 0o700)
    except FileExistsError:  # of a check that was killed, whose number we have got
        pass
    os.rmdir(name)


def _shown(folder: str) -> str:
    import shlex

    return f"ls -ld {shlex.quote(folder)}"
