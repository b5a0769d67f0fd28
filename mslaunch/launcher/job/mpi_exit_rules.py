"""Manners: what the state makes of what ranks do in MPI, and of what they leave undone.

Who calls MPI_Init and ends without MPI_Finalize, or never comes where others wait, is missed for ever; the roster knows
who did what, and here it becomes a failure.  Ends of processes and of the job are in `state`, which stands on this.
The surprising thing: a rank that ended well may become a failure later, when another one is in MPI_Init.
"""

from __future__ import annotations

from mslaunch.datamodel.outcome import Failure
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job import events
from mslaunch.launcher.job.failure_causes import FailureCauses
from mslaunch.launcher.job.rank_table import RankTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.launcher.job.rank_state import RankState
    from mslaunch.launcher.job.restart_policy import RestartPolicy


class MpiExitRules(RankTable):
    """The part of the state that MPI programs have to do with."""

    def __init__(self, jobmap: JobMap, streams: int, rules: RestartPolicy) -> None:
        super().__init__(jobmap, streams)
        self._rules = rules
        self._blame = FailureCauses(self.hosts, self.worlds)
        self.failure: Failure | None = None
        self._by_abort = False  # the failure is that a rank called MPI_Abort, and may be a victim's

    def _of_mpi(self) -> dict[type, Callable[[Any], list[Any]]]:
        return {
            events.Joined: self._joined,
            events.Left: self._left,
            events.Aborted: self._aborted,
            events.CameAlone: self._on_singleton,
            events.Stranded: lambda event: self._missing(self.ranks[event.rank]),
            events.Impossible: lambda event: self._fail(Failure(event.what, detail=(event.todo,))),
        }

    def _fail(self, failure: Failure, again: bool = False) -> list[Any]:
        """See `JobState`."""
        raise NotImplementedError

    def _joined(self, event: events.Joined) -> list[Any]:
        """Who has ended without MPI_Init will never be there."""
        rank = self.ranks[event.rank]
        rank.joined, rank.left = True, False
        gone = rank.world.ended_ranks()
        return self._missing(gone) if gone else []

    def _left(self, event: events.Left) -> list[Any]:
        self.ranks[event.rank].left = True
        return []

    def _aborted(self, event: events.Aborted) -> list[Any]:
        rank = self.ranks[event.rank]
        if event.broken and rank.ended:  # all that can still be wrong is that it is waited for
            return self._missing(rank)
        failure = self._blame.aborted(rank, event)
        actions = self._fail_with(rank, failure)
        rank.aborted = not event.broken
        self._by_abort = self._by_abort or (rank.aborted and self.failure is failure)
        return actions

    def _replace_cause(self, failure: Failure, *ranks: RankState) -> bool:
        """`failure`, of `ranks`, is no consequence of the end of the job; but is that of an abort, heard of first?

        Libraries see a connection closed, and call MPI_Abort, before another host has told us why it was.
        """
        if not self._by_abort or any(rank.aborted for rank in ranks):
            return False
        self._by_abort, self.failure = False, failure
        return True

    def _on_singleton(self, event: events.CameAlone) -> list[Any]:
        rank = self.ranks[event.rank]
        return self._fail_with(rank, self._blame.singleton(rank, event))

    def _check_mpi_exit(self, rank: RankState) -> list[Any]:
        """A rank has ended with 0; are there others in its world that will wait for it?

        With recovery the others may go on without one that has not finalized, as without one that was killed, until
        they wait for it.
        """
        who = rank.waited_for_by()
        if not who:
            return []
        failure = self._blame.missing(rank, who)
        if self._rules.survives and not rank.left:
            self.failure = self.failure or failure
            return []
        return self._fail_with(rank, failure)

    def _missing(self, rank: RankState) -> list[Any]:
        return self._fail_with(rank, self._blame.missing(rank))

    def _fail_with(self, rank: RankState, failure: Failure) -> list[Any]:
        return [] if rank.world.failed else self._fail(failure)  # who spawned it knows
