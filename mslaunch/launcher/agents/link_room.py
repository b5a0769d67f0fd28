"""Waiting for room on a link: whoever asks for more to be sent to a host that has enough on its way is not read.

So nothing grows meanwhile.  A host that takes nothing of it is given up after a lease (`leases`), or after a day where
there is none.  This is imported when somebody has to wait, which most launches do not live to see.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.launcher.agents.diagnose_start import unread

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.errors import LinkError
    from mslaunch.runtime.loop import Loop, Timer

    class HeldLink(Protocol):
        """What is used here of an `AgentConnection`."""

        loop: Loop
        node: Node
        open: bool
        took: float
        room: LinkRoom | None
        behind: set[HeldLink]

        @property
        def pending(self) -> int:
            """Bytes on their way to the agent."""

        def read_on(self, on: bool) -> None:
            """Read, or let the host wait."""

        def lose(self, error: LinkError) -> None:
            """Give it up."""


_ASLEEP = 86400.0  # seconds: a laptop may sleep for a night


class LinkRoom:
    """Those who wait until less is on its way on one link."""

    def __init__(self, connection: HeldLink) -> None:
        self._connection = connection
        self._waiting: list[Callable[[], None]] = []
        self._timer: Timer | None = None

    def wait(self, call: Callable[[], None]) -> None:
        """Call back once, later: when half of what may be on its way is, or the connection has ended."""
        self._waiting.append(call)
        if not self._timer:
            self._timer = self._connection.loop.after(_ASLEEP, self._look_if_asleep)

    def is_there(self) -> None:
        """Nobody has to wait any more."""
        waiting, self._waiting = self._waiting, []
        if self._timer:
            self._timer.cancel()
            self._timer = None
        for call in waiting:
            self._connection.loop.soon(call)

    def _look_if_asleep(self) -> None:
        self._timer = None
        connection = self._connection
        idle = connection.loop.now() - connection.took
        if self._waiting and idle >= _ASLEEP:
            connection.lose(unread(connection.pending, idle, connection.node.name))
        elif self._waiting:
            self._timer = connection.loop.after(_ASLEEP - idle, self._look_if_asleep)


def when_room(connection: HeldLink, call: Callable[[], None]) -> None:
    """Call back once, when a connection has room again or has ended."""
    if connection.room is None:
        connection.room = LinkRoom(connection)
    connection.room.wait(call)


def hold(connection: HeldLink, other: HeldLink) -> None:
    """Read nothing more of `connection` until there is room for what it makes us send to `other`, perhaps itself."""
    if connection.open and other not in connection.behind:
        connection.behind.add(other)
        connection.read_on(False)
        when_room(other, partial(_release, connection, other))


def wait_for_itself(connection: HeldLink) -> None:
    """Let a connection wait for no other one any more."""
    for other in connection.behind - {connection}:
        connection.loop.soon(partial(_release, connection, other))


def _release(connection: HeldLink, other: HeldLink) -> None:
    if other in connection.behind:
        connection.behind.discard(other)
        if connection.open and not connection.behind:
            connection.read_on(True)
