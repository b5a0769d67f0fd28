"""The state of a job's services: processes that are not ranks.

Most jobs have none: a service becomes a member when a rank connects to its port.  One that ended well may be started
again, for the next program of a script.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.job.rank_state import RankState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.launcher.job import events

_STREAMS = 2


def title(number: int) -> str:
    """What messages call it."""
    return service_info(number).title


class ServiceTable:
    """Those of one launch."""

    def __init__(self) -> None:
        self.members: dict[int, RankState] = {}  # that run, have run or could not be started
        self._places: dict[int, int] = {}  # those that are started before the ranks -> node
        self._awaited: set[int] = set()  # of these, who is not ready yet

    # --- before the ranks

    def expect(self, places: Iterable[tuple[int, int]]) -> None:
        """These are started before the ranks: number and node of each."""
        self._places.update(places)
        self._awaited.update(self._places)

    def ready(self, number: int) -> bool:
        """One of them is ready for ranks; True if it was the last."""
        before = bool(self._awaited)
        self._awaited.discard(number)
        return before and not self._awaited

    @property
    def awaited(self) -> list[int]:
        """Who is not ready yet."""
        return sorted(self._awaited, reverse=True)

    @property
    def nodes(self) -> set[int]:
        """Where they are."""
        return set(self._places.values())

    # --- what happens to them

    def started(self, number: int, node: int, pid: int) -> None:
        """One of them runs."""
        member = self.members.setdefault(number, RankState(number, node, _STREAMS))
        if member.ended:
            member.reset(_STREAMS)
        member.pid = pid

    def exited(self, event: events.Exited) -> RankState:
        """One of them has ended, or could not be started; returns it."""
        member = self.members.setdefault(event.rank, RankState(event.rank, event.node, 0))
        member.ended, member.code, member.signal = True, event.code, event.signal
        if member.pid is None:  # no process, no streams
            member.streams = 0
        return member

    def begin_again(self, member: RankState) -> None:
        """It has failed and is about to be started again."""
        member.begin_again(_STREAMS)

    def lost(self, node: int) -> list[int]:
        """A host is gone, and what ran there with it: returns who may be missed."""
        lost = [number for number, member in self.members.items() if member.node == node and not member.ended]
        lost += [number for number, at in self._places.items() if at == node and number not in self.members]
        for member in self.members.values():
            if member.node == node:
                member.ended, member.streams = True, 0
        return sorted(lost, reverse=True)

    @property
    def running(self) -> bool:
        """One of them has not ended."""
        return not all(member.ended for member in self.members.values())

    @property
    def over(self) -> bool:
        """Their processes and streams have ended."""
        return all(member.over for member in self.members.values())
