"""When a service is ready, and when it is idle: by who listens at its port, and who is connected to it.

A port that is open is no proof that the service listens: for a moment another process may have it.  So the process that
listens must be the service's, or one that it has started.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.listeners import by_whom, connected, holder, sockets
from mslaunch.host.processes import family, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop, Timer

POLL = 0.015  #: seconds between two looks; more where a look takes long
SECONDS = 60.0  #: that a process is waited for
IDLE = 2.0  #: seconds without a connection after which a process counts as no longer needed
_LOOK_FOR_CONNECTIONS = 0.25  # seconds


class ListenWait:
    """Waits until the process `pid`, or one that it has started, listens at `port`."""

    def __init__(self, loop: Loop, port: int, pid: int, heard: Callable[[LaunchError | None], None]) -> None:
        """`heard` gets None once it does, or why it never can; it is given up after a minute."""
        self._loop = loop
        self._port = port
        self._pid = pid
        self._heard = heard
        self._until = self._loop.now() + SECONDS
        self._timer: Timer = loop.after(POLL, self._look)

    def cancel(self) -> None:
        """It has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        began = self._loop.now()
        found = sockets(self._port)
        if found and holder(found, family([self._pid])) is not None:
            self._heard(None)
        elif found and holder(found, numbers()):
            what = f"port {self._port} is now in use{by_whom(self._port)}"
            self._heard(LaunchError(what, todo="it was free a moment ago: launch again, or let another be chosen"))
        else:
            now = self._loop.now()
            if now < self._until:
                self._timer = self._loop.after(max(POLL, 10 * (now - began)), self._look)


class IdleWait:
    """Waits until nobody is connected to `port` any more; the process that listens there may end before."""

    def __init__(self, loop: Loop, port: int, done: Callable[[], None]) -> None:
        self._loop = loop
        self._port = port
        self._done = done
        self._busy = self._loop.now()  # when somebody was last seen
        self._timer: Timer = loop.after(0.0, self._look)

    def cancel(self) -> None:
        """It has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        began = self._loop.now()
        if connected(self._port):
            self._busy = began
        now = self._loop.now()
        if now - self._busy >= IDLE:
            self._done()
        else:
            self._timer = self._loop.after(max(_LOOK_FOR_CONNECTIONS, 10 * (now - began)), self._look)
