"""Restarts: orders to start a rank or a service again, at once or after --restart-delay, and the words for them.

It knows no policy: the state has ordered each of them and expects an answer.  The surprising thing: when the job is
ended meanwhile they are sent at once, behind the order to end, for it is the agent that answers them then (no).
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mslaunch.launcher.job.events import Restart
    from mslaunch.runtime.loop import Loop
    from mslaunch.runtime.timers import Timer


class DelayedRestarts:
    """Of one launch; `send(node, frame)` sends."""

    def __init__(self, loop: Loop, send: Callable[[int, bytes], None], delay: float) -> None:
        self._loop = loop
        self._send = send
        self._delay = delay
        self._waiting: dict[int, tuple[Timer, int, bytes]] = {}  # rank -> when, node, frame

    def order(self, again: Restart, where: str) -> str:
        """Carry `again` out when it is time; returns the words for it.  `where`: `rank 1 was ended by … on n01`.

        A service is started at once: ranks do not wait for the scheduler for long.
        """
        rank, node = again.rank, again.node
        frame = frames.encode(frames.RESTART, rank, str(again.number).encode())
        waits = self._delay > 0 and rank >= 0
        if waits:
            self._waiting[rank] = self._loop.after(self._delay, lambda: self._due(rank)), node, frame
        else:
            self._send(node, frame)
        return f"{where}; started again{f' in {self._delay:g} s' if waits else ''}, {again.number} of {again.limit}"

    def _due(self, rank: int) -> None:
        timer, node, frame = self._waiting.pop(rank)
        timer.cancel()
        self._send(node, frame)

    def flush(self, nodes: Collection[int]) -> None:
        """The order to end has gone out to `nodes`; the others are lost."""
        for rank in list(self._waiting):
            timer, node, frame = self._waiting.pop(rank)
            timer.cancel()
            if node in nodes:
                self._send(node, frame)
