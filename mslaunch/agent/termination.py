"""How the processes of a node are ended: SIGTERM, the seconds of the grace, SIGKILL; services after the ranks.

SIGTERM goes to the ranks, or to their process groups (--term-to); SIGKILL always to the groups.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.agent.ranks.rank import RankProcess
    from mslaunch.runtime.loop import Loop


class Termination:
    """Ends `ranks`, by their numbers, and the services of the node."""

    def __init__(
        self,
        loop: Loop,
        ranks: Mapping[int, RankProcess],
        begins: Callable[[], None],
        end_services: Callable[[bool], None],
    ) -> None:
        """`begins` is called once, before the first signal.

        `end_services(at_once)`: False while ranks may still be using them.
        """
        self._loop = loop
        self._ranks = ranks
        self._begins = begins
        self._end_services = end_services
        self._abandoned = False
        self.begun = False
        self.grace = 0.0  #: --grace, in seconds, as the plan gives it
        self.to = "rank"  #: --term-to, the same

    def end(self, grace: float) -> None:
        """SIGTERM now, and SIGKILL after `grace` seconds; 0: SIGKILL now.

        A second order with a grace changes nothing for ranks: programs take a second SIGTERM for "at once".
        """
        if self.begun and grace > 0:
            self._end_services(not self._running())
            return
        if not self.begun:
            self.begun = True
            self._begins()
        for rank in self._ranks.values():
            rank.hurry(at_once=grace <= 0)
        for rank in self._ranks.values():
            rank.signal(signal.SIGCONT if grace > 0 else signal.SIGKILL)
            if grace > 0:  # CONT first: a stopped process does not receive TERM
                rank.ask(signal.SIGTERM, self.to)
        if grace > 0:
            self._loop.after(grace, lambda: self.end(0.0))
        self._end_services(grace <= 0 or not self._running())

    def abandon(self) -> None:
        """The launcher is gone: end all, the services as soon as no rank is left."""
        self._abandoned = True
        self.end(self.grace)

    def rank_ended(self) -> None:
        """One of them has ended, for whatever reason."""
        if self._abandoned and not self._running():
            self._end_services(True)

    def _running(self) -> bool:
        return any(rank.running for rank in self._ranks.values())
