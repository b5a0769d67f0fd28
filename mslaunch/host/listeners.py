"""The processes that listen at a port of this host, read from /proc, and why a port cannot be held.

The kernel lists sockets that listen before all others, so a host with a hundred thousand connections is read as fast as
an idle one.
"""

from __future__ import annotations

import os
from errno import EADDRINUSE

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.processes import link, numbers, strings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LISTEN = b"0A"
_ESTABLISHED = b"01"
_SHOWN = 80  # characters of a command line


def sockets(port: int) -> set[str]:
    """The links in /proc/PID/fd of processes that listen at `port`."""
    found = set()
    for name in ("tcp", "tcp6"):
        for number, state, inode in _table(name):
            if state != _LISTEN:
                break
            if number == port:
                found.add(f"socket:[{inode.decode()}]")
    return found


def connected(port: int) -> bool:
    """Whether anybody is connected to our `port`."""
    return any(row[:2] == (port, _ESTABLISHED) for name in ("tcp", "tcp6") for row in _table(name))


def _table(name: str) -> Iterator[tuple[int, bytes, bytes]]:
    """Local port, state and inode of each socket.

    proc(5): number, local address:port, remote one, state, …, the tenth word is the inode.
    """
    try:
        with open(f"/proc/net/{name}", "rb") as file:
            next(file, b"")
            for line in file:
                words = line.split(None, 10)
                yield int(words[1].rpartition(b":")[2], 16), words[3], words[9]
    except OSError:  # no IPv6
        return


def holder(wanted: set[str], pids: Iterable[int]) -> int | None:
    """The first of `pids` that has one of these sockets open; 0: one of them does not let us look, None: none has."""
    hidden = False
    for pid in pids:
        try:
            fds = os.listdir(f"/proc/{pid}/fd")
        except FileNotFoundError:
            continue
        except OSError:
            hidden = True
            continue
        if any(link(pid, f"fd/{fd}") in wanted for fd in fds):
            return pid
    return 0 if hidden else None


def by_whom(port: int) -> str:
    """` by …`: the process that listens at `port`, as far as we may know."""
    pid = holder(sockets(port), numbers())
    if not pid:
        return " by another process"
    command = " ".join(" ".join(strings(pid, "cmdline")).split())
    return f" by process {pid}" + (f" ({command[:_SHOWN]})" if command else "")


def refused(port: int, moves: bool, error: OSError) -> LaunchError:
    """Why a port cannot be held; 0: any would have done, `moves`: one of those below it, too."""
    if not port:
        return LaunchError(f"no free TCP port was found: {error.strerror}")
    todo = "name another port: --master_port PORT, or --scheduler HOST:PORT"
    if error.errno != EADDRINUSE:
        return LaunchError(f"port {port} cannot be used: {error.strerror}", todo=todo)
    if moves:
        return LaunchError(f"port {port} is taken, and so are those below it that were tried", todo=todo)
    return LaunchError(f"port {port} is taken{by_whom(port)}", todo=f"end that process, or {todo}")
