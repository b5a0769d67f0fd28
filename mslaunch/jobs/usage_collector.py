"""Asks the agents of a job what time and memory their ranks take, and waits for the answers, for a bounded time."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.connection import meaningless
from mslaunch.protocol import frames
from mslaunch.protocol.rank_usage import RankUsage, pack_pids, unpack_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.launcher.job.controller import JobController
    from mslaunch.runtime.loop import Loop, Timer

    Usage = dict[int, RankUsage]  # by rank
    Done = Callable[[Usage], None]

SECONDS = 3.0


class UsageCollector:
    """Asks the agents of one job what its ranks use; several who ask at one time get one answer."""

    def __init__(self, loop: Loop, job: JobController) -> None:
        self.job = job
        self._loop = loop
        self._waiting: set[int] = set()  # nodes
        self._owed: dict[int, int] = {}  # node -> answers that may still come, also after a limit
        self._found: Usage = {}
        self._asked: list[Done] = []
        self._limit: Timer | None = None
        job.on[frames.USED] = self._came

    def ask(self, done: Done) -> None:
        """`done` gets what is known within a few seconds."""
        self._asked.append(done)
        if len(self._asked) > 1:
            return
        self._found = {}
        self._limit = self._loop.after(SECONDS, self._over)
        table = self.job.state.table
        for node in sorted(table.alive):
            pids = [rank.pid for rank in table.on(node) if rank.pid and not rank.ended]
            if pids:
                self._waiting.add(node)
                self._owed[node] = self._owed.get(node, 0) + 1
                self.job.agents.send(node, frames.encode(frames.USE, payload=pack_pids(pids)))
        if not self._waiting:
            self._over()

    def _came(self, node: int, frame: frames.Frame) -> None:
        if not self._owed.get(node):
            raise meaningless(frame)
        self._owed[node] -= 1
        usage = unpack_usage(frame.payload)
        for rank in self.job.state.table.on(node):
            if rank.pid in usage:
                self._found[rank.rank] = usage[rank.pid]
        if not self._owed[node]:
            self._waiting.discard(node)
            if not self._waiting:
                self._over()

    def _over(self) -> None:
        if self._limit:
            self._limit.cancel()
        self._waiting.clear()
        asked, self._asked = self._asked, []
        for done in asked:
            done(self._found)
