"""The state of the job's services: processes that are no ranks, with negative numbers in frames.

A service that is started on demand is not in the table before it runs; one that ended well may run again.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.rank_state import RankState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.launcher.job import events

_STREAMS = 2


class ServiceTable:
    """The services of one job."""

    def __init__(self) -> None:
        self.members: dict[int, RankState] = {}  # that run, have run or could not be started
        self._nodes: dict[int, int] = {}  # service -> node, of those that are started before the ranks
        self._awaited: set[int] = set()  # those of them that are not ready yet

    # --- before the ranks

    def expect(self, services: Iterable[tuple[int, int]]) -> None:
        """These are started before the ranks: number and node of each."""
        self._nodes.update(services)
        self._awaited.update(self._nodes)

    def ready(self, number: int) -> bool:
        """A service is ready; True if it was the last that ranks waited for."""
        before = bool(self._awaited)
        self._awaited.discard(number)
        return before and not self._awaited

    @property
    def awaited(self) -> list[int]:
        """The services that are not ready yet."""
        return sorted(self._awaited, reverse=True)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of those that are started before the ranks, ascending."""
        return tuple(sorted(set(self._nodes.values())))

    # --- while they run

    def started(self, number: int, node: int, pid: int) -> None:
        """A service runs."""
        member = self.members.setdefault(number, RankState(number, node, _STREAMS))
        if member.ended:
            member.reset(_STREAMS)
        member.pid = pid

    def exited(self, event: events.Exited) -> RankState:
        """A service has ended, or could not be started; returns it."""
        member = self.members.setdefault(event.rank, RankState(event.rank, event.node, 0))
        member.ended, member.status = True, event.status
        if member.pid is None:  # no process, no streams
            member.streams = 0
        return member

    def begin_again(self, member: RankState) -> None:
        """A service has failed and is about to be restarted."""
        member.begin_again(_STREAMS)

    def lost(self, node: int) -> list[int]:
        """A host was lost; returns the services that were needed there."""
        lost = [number for number, member in self.members.items() if member.node == node and not member.ended]
        lost += [number for number, at in self._nodes.items() if at == node and number not in self.members]
        for member in self.members.values():
            if member.node == node:
                member.ended, member.streams = True, 0
        return sorted(lost, reverse=True)

    @property
    def running(self) -> bool:
        """A service has not ended."""
        return not all(member.ended for member in self.members.values())

    @property
    def over(self) -> bool:
        """The processes and streams of all services have ended."""
        return all(member.over for member in self.members.values())
