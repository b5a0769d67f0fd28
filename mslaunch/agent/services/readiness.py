"""The readiness of a service, and its idleness: who listens at its port, and who is connected to it.

An open port does not prove that the service listens, since another process may have it for a moment.  So the process
that listens must be that of the service, or one that it has started.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.listeners import by_whom, connected, holder, sockets
from mslaunch.host.processes import family, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop, Timer

POLL = 0.015  #: seconds between two looks for a listener
SECONDS = 60.0  #: that a process is waited for
IDLE = 2.0  #: seconds without a connection after which a process counts as no longer needed
_LOOK_FOR_CONNECTIONS = 0.25  # seconds


class PortPoll:
    """Looks at a port until `look` returns True, every `pause` seconds, and more seldom where a look takes long."""

    def __init__(self, loop: Loop, pause: float, look: Callable[[], bool]) -> None:
        self._loop = loop
        self._pause = pause
        self._look = look
        self._timer: Timer = loop.after(pause, self._poll)

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _poll(self) -> None:
        began = self._loop.now()
        if not self._look():
            self._timer = self._loop.after(max(self._pause, 10 * (self._loop.now() - began)), self._poll)


def await_listener(
    loop: Loop, port: int, pid: int, heard: Callable[[LaunchError | None], None], address: str = ""
) -> PortPoll:
    """Wait until the process `pid`, or one that it has started, listens at `port`: `heard(None)`.

    `heard` gets an error if another process listens there, at `address` ("": at any).  After a minute nothing is
    waited for any more.
    """
    until = loop.now() + SECONDS

    def look() -> bool:
        found = sockets(port, address)
        if found and holder(found, family([pid])) is not None:
            heard(None)
        elif found and (set(found.values()) != {os.geteuid()} or holder(found, numbers())):
            what = f"port {port} is now in use{by_whom(port)}"
            heard(LaunchError(what, todo="it was free a moment ago: launch again, or let another be chosen"))
        else:
            return loop.now() >= until
        return True

    return PortPoll(loop, POLL, look)


def await_idle(loop: Loop, port: int, done: Callable[[], None]) -> PortPoll:
    """Wait until nobody has been connected to `port` for `IDLE` seconds; who listens there may end before."""
    busy = loop.now()  # when somebody was last seen

    def look() -> bool:
        nonlocal busy
        if connected(port):
            busy = loop.now()
        idle = loop.now() - busy >= IDLE
        if idle:
            done()
        return idle

    return PortPoll(loop, _LOOK_FOR_CONNECTIONS, look)
