"""The processes that listen at a port of this host, read from /proc: to wait for one, and to name one in an error.

The kernel lists sockets that listen before all others, so a host with a hundred thousand connections is read as fast as
an idle one.
"""

from __future__ import annotations

import os
import time
from errno import EADDRINUSE

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.processes import family, link, numbers, strings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mslaunch.runtime.loop import Loop, Timer

POLL = 0.015  #: seconds between two looks; more where a look takes long
SECONDS = 60.0  #: that a process is waited for
IDLE = 2.0  #: seconds without a connection after which a process counts as no longer needed
_LOOK_FOR_CONNECTIONS = 0.25  # seconds
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


class ListenWait:
    """Waits until the process `pid`, or one that it has started, listens at `port`."""

    def __init__(self, loop: Loop, port: int, pid: int, heard: Callable[[LaunchError | None], None]) -> None:
        """`heard` gets None once it does, or why it never can; it is given up after a minute."""
        self._loop = loop
        self._port = port
        self._pid = pid
        self._heard = heard
        self._until = time.monotonic() + SECONDS
        self._timer: Timer = loop.after(POLL, self._look)

    def cancel(self) -> None:
        """It has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        began = time.monotonic()
        found = sockets(self._port)
        if found and holder(found, family([self._pid])) is not None:
            self._heard(None)
        elif found and holder(found, numbers()):
            what = f"port {self._port} is now in use{by_whom(self._port)}"
            self._heard(LaunchError(what, todo="it was free a moment ago: launch again, or let another be chosen"))
        else:
            now = time.monotonic()
            if now < self._until:
                self._timer = self._loop.after(max(POLL, 10 * (now - began)), self._look)


class IdleWait:
    """Waits until nobody is connected to `port` any more; the process that listens there may end before."""

    def __init__(self, loop: Loop, port: int, done: Callable[[], None]) -> None:
        self._loop = loop
        self._port = port
        self._done = done
        self._busy = time.monotonic()  # when somebody was last seen
        self._timer: Timer = loop.after(0.0, self._look)

    def cancel(self) -> None:
        """It has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        began = time.monotonic()
        if connected(self._port):
            self._busy = began
        now = time.monotonic()
        if now - self._busy >= IDLE:
            self._done()
        else:
            self._timer = self._loop.after(max(_LOOK_FOR_CONNECTIONS, 10 * (now - began)), self._look)
