"""The processes that listen at a port of this host, read from /proc, and why a port cannot be held.

The kernel lists sockets that listen before all others, so a host with a hundred thousand connections is read as fast as
an idle one.
"""

from __future__ import annotations

import os
from errno import EADDRINUSE

from mslaunch.errors import LaunchError, limit_of, reason
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.connection_owners import column, plain_address, user_name
from mslaunch.host.processes import link, numbers, strings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_LISTEN = b"0A"
_ESTABLISHED = b"01"
_SHOWN = 80  # characters of a command line


class ConnectionEnd(NamedTuple):
    """One end of an established connection, which a process of this host has."""

    own: tuple[str, int]  # address and port
    other: tuple[str, int]
    socket: str  # the link in /proc/PID/fd


def connections(port: int) -> list[ConnectionEnd]:
    """The ends on this host of all connections to `port`, here or elsewhere: who listens there, and who has called."""
    return [
        ConnectionEnd((plain_address(at), number), (plain_address(peer), there), f"socket:[{inode.decode()}]")
        for name in ("tcp", "tcp6")
        for number, state, inode, _, at, peer, there in _table(name)
        if port in (number, there) and state == _ESTABLISHED
    ]


def sockets(port: int, address: str = "") -> dict[str, int]:
    """The links in /proc/PID/fd of processes that listen at `port` and `address` ("": any), and their users."""
    found = {}
    wanted = column(address) if address else b""
    for name in ("tcp", "tcp6"):
        for number, state, inode, uid, at, _, _ in _table(name):
            if state != _LISTEN:
                break
            if number == port and (at.endswith(wanted) or not at.strip(b"0")):
                found[f"socket:[{inode.decode()}]"] = int(uid)
    return found


def connected(port: int) -> bool:
    """Whether anybody is connected to our `port`."""
    return any(row[:2] == (port, _ESTABLISHED) for name in ("tcp", "tcp6") for row in _table(name))


def _table(name: str) -> Iterator[tuple[int, bytes, bytes, bytes, bytes, bytes, int]]:
    """Local port, state, inode, user and local address of each socket; address and port of the other end.

    proc(5): number, local address:port, remote one, state, …, the eighth word is the user, the tenth the inode.
    """
    try:
        with open(f"/proc/net/{name}", "rb") as file:
            next(file, b"")
            for line in file:
                words = line.split(None, 10)
                address, _, port = words[1].rpartition(b":")
                peer, _, there = words[2].rpartition(b":")
                yield int(port, 16), words[3], words[9], words[7], address, peer, int(there, 16)
    except OSError:  # no IPv6
        return


def holder(wanted: Collection[str], pids: Iterable[int]) -> int | None:
    """The first of `pids` that has one of these sockets open; 0: one of them does not let us look, None: none has."""
    hidden = False
    for pid in pids:
        try:
            fds = os.listdir(f"/proc/{pid}/fd")
        except (FileNotFoundError, ProcessLookupError):  # it has ended, perhaps just now
            continue
        except OSError:
            hidden = True
            continue
        if any(link(pid, f"fd/{fd}") in wanted for fd in fds):
            return pid
    return 0 if hidden else None


def by_whom(port: int) -> str:
    """` by …`: the process that listens at `port`, or its user, as far as we may know."""
    found = sockets(port)
    pid = holder(found, numbers())
    if not pid:
        others = [uid for uid in found.values() if uid != os.geteuid()]
        return f" by a process of {user_name(others[0])}" if others else " by another process"
    command = " ".join(" ".join(strings(pid, "cmdline")).split())
    return f" by process {pid}" + (f" ({command[:_SHOWN]})" if command else "")


def refused(port: int, moves: bool, error: OSError) -> LaunchError:
    """Why a port cannot be held; 0: any would have done, `moves`: one of those below it, too."""
    if not port:
        todo = "raise the limit on that host" if limit_of(error.errno) else ""
        return LaunchError(f"no free TCP port was found: {reason(error)}", todo=todo)
    todo = "name another port: --scheduler HOST:PORT; among msrun's words --master_port, among torchrun's --master-port"
    if error.errno != EADDRINUSE:
        return LaunchError(f"port {port} cannot be used: {reason(error)}", todo=todo)
    if moves:
        return LaunchError(f"port {port} is taken, and so are those below it that were tried", todo=todo)
    return LaunchError(f"port {port} is taken{by_whom(port)}", todo=f"end that process, or {todo}")
