"""The programs of a job that start one after the other (--ready): which step runs, and for whose port the next waits.

A part of the state of a job; it is there only if a program has --ready.  Methods return actions.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_TIMEOUT, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher import job_failure
from mslaunch.launcher.job.events import READY, AwaitPort, Start
from mslaunch.launcher.job_failure import JobFailure

SEEN_SECONDS = 2.0  #: in which an agent sees an open port; it looks some times a second where looking is slow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from mslaunch.launcher.job.events import JobTimers
    from mslaunch.launcher.job.rank_table import RankState
    from mslaunch.plan.program_steps import ProgramStep


class ProgramStarts:
    """The steps of one job."""

    def __init__(self, steps: Sequence[ProgramStep], seconds: float) -> None:
        """`seconds`: how long a head may take from its last start until it listens."""
        self._steps = steps
        self._seconds = seconds
        self._at = 0
        self.meeting = 0  #: MASTER_PORT, once it is known

    @property
    def head(self) -> int:
        """The rank whose port is waited for; -1: none is."""
        return self._steps[self._at].head

    @property
    def port(self) -> int:
        """That port."""
        port = self._steps[self._at].port
        return port if port > 0 else self.meeting

    def reached(self, ranks: Collection[int]) -> bool:
        """Whether all of these ranks have been started."""
        return all(any(rank in step.ranks for step in self._steps[: self._at + 1]) for rank in ranks)

    def held(self) -> list[int]:
        """The ranks that have not been started."""
        return sorted(rank for step in self._steps[self._at + 1 :] for rank in step.ranks)

    # --- actions

    def begin(self, timers: JobTimers) -> list[Any]:
        """Start the ranks of this step."""
        return [Start(self._at), *(timers.set(READY, self._seconds) if self.head >= 0 else ())]

    def started(self, rank: RankState, timers: JobTimers) -> list[Any]:
        """A rank runs, perhaps again; its own time counts from here."""
        if rank.rank != self.head or rank.pid is None:
            return []
        fresh = [*timers.cancel(READY), *timers.set(READY, self._seconds)]
        return [*fresh, AwaitPort(rank.rank, rank.node, rank.pid, self.port)]

    def opened(self, rank: int, timers: JobTimers) -> list[Any]:
        """A rank listens at its port."""
        if rank != self.head:
            return []
        self._at += 1
        return [*timers.cancel(READY), *self.begin(timers)]

    def in_mpi(self, rank: RankState, timers: JobTimers) -> list[Any]:
        """A rank has called MPI_Init: it listens already, and will be seen to, or it never will."""
        if rank.rank != self.head:
            return []
        return [*timers.cancel(READY), *timers.set(READY, min(self._seconds, SEEN_SECONDS))]

    def signalled(self, signum: int, ranks: Mapping[int, RankState], timers: JobTimers) -> list[Any]:
        """A head that is suspended cannot listen: it has its whole time again when it goes on."""
        if signum == signal.SIGSTOP:
            return timers.cancel(READY)
        if signum != signal.SIGCONT or self.head < 0:
            return []
        return timers.set(READY, min(self._seconds, SEEN_SECONDS) if ranks[self.head].in_mpi else self._seconds)

    # --- failures

    def ended(self, rank: RankState) -> JobFailure:
        """The head has ended, and is not started again."""
        return self._failure("ended", rank, rank.status.shell_code or EXIT_USAGE)

    def late(self, rank: RankState) -> JobFailure:
        """The time is over; a head in MPI_Init waits there for ranks that wait for its port."""
        if not rank.in_mpi:
            return self._failure("late", rank, EXIT_TIMEOUT)
        failure = self._failure("mpi", rank, EXIT_USAGE)
        return failure._replace(rank=None)  # it did nothing wrong, and would do it again in another attempt

    def _failure(self, why: str, rank: RankState, code: int) -> JobFailure:
        facts = {"why": why, "rank": rank.rank, "head": self.head, "port": self.port, "seconds": self._seconds}
        return JobFailure(job_failure.NOT_READY, {**facts, "status": rank.status}, rank.node, rank.rank, code)
