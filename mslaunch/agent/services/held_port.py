"""The port of a service that does not run yet, held by listening and handed over when somebody connects.

A job that never asks for the service pays for nothing else.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.free_ports import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop


class ServicePort:
    """One port of this host; 0 for a service that has none."""

    def __init__(self, loop: Loop, number: int, listener: Listener | None, connected: Callable[[], None]) -> None:
        """`listener` holds it already; `connected` is called when somebody has connected, and the port is free."""
        self.number = number
        self._loop = loop
        self._connected = connected
        self._listener = listener
        self._held = listener  # with it goes its claim to the port

    def wait(self) -> None:
        """Wait for a connection; raises OSError if another process has taken the port."""
        if self._listener is None:
            self._listener = Listener(self.number)
        self._loop.reader(self._listener.fileno(), self._readable)

    def _readable(self) -> None:
        """Hand over the port first, and only then look who asks.

        Closing resets those who have connected, and they try again within half a second; but a client that had the time
        to send its registration may wait 15 s for an answer that nobody will give (docs/design.md).
        """
        self.hand_over()
        self._connected()

    def hand_over(self) -> None:
        """Let somebody else bind it; other agents still know it as ours."""
        if self._listener:
            self._loop.reader(self._listener.fileno(), None)
            self._listener.hand_over()
            self._listener = None

    def close(self) -> None:
        """Nobody needs it any more."""
        self.hand_over()
        if self._held:
            self._held.close()
