"""The CPU time of the hosts of `scripts/cluster`: of their sshd, and of all processes that it has waited for.

The first process of a host is its sshd, which reaps the sessions and what they leave behind.  It cannot be seen from
the cluster's head, where the measurement runs; but files of /proc that were opened outside can be read there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence

from cluster_lib.files import Directory

from bench_lib import BenchError

PATIENCE = 5.0  #: seconds for sessions to end, once the launcher has
_TICK = os.sysconf("SC_CLK_TCK")
_OWN_AND_WAITED_FOR = slice(11, 15)  #: utime, stime, cutime, cstime, counted behind the name; proc(5)

Files = Sequence[Sequence[int]]  #: for each host the descriptors of stat and of the children of its sshd


@contextlib.contextmanager
def opened(directory: str) -> Iterator[list[tuple[int, int]]]:
    """The files of a cluster's hosts, for the time of the block; to be inherited by what reads them."""
    found = []
    try:
        for place in Directory(directory).running().hosts:
            if place.process is None:
                raise BenchError(f"{place.name} has no sshd")
            pid = place.process.pid
            found.append((_open(f"/proc/{pid}/stat"), _open(f"/proc/{pid}/task/{pid}/children")))
        yield found
    finally:
        for pair in found:
            for fd in pair:
                os.close(fd)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def keep(files: Files) -> None:
    """What the caller starts does not inherit them any more."""
    for pair in files:
        for fd in pair:
            os.set_inheritable(fd, False)


def seconds(files: Files) -> float:
    """What all hosts together have used until now."""
    return sum(spent(os.pread(stat, 4096, 0).decode(errors="replace")) for stat, _ in files)


def spent(stat: str) -> float:
    """Seconds, from the text of /proc/PID/stat; the name in it may have any characters."""
    return sum(map(int, stat.rpartition(")")[2].split()[_OWN_AND_WAITED_FOR])) / _TICK


def when_idle(files: Files, patience: float = PATIENCE) -> float:
    """The same, once no host has a session any more, or at the latest after `patience`."""
    deadline = time.monotonic() + patience
    while any(os.pread(children, 4096, 0).strip() for _, children in files) and time.monotonic() < deadline:
        time.sleep(0.01)  # there is no event for the end of another's child
    return seconds(files)
