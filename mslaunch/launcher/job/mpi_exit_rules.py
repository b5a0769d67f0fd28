"""MPI exit rules: whether what a rank did in MPI, or left undone, is a failure of the job.

Others wait for ever for a rank that ends between MPI_Init and MPI_Finalize, or that never calls MPI_Init although they
did.  A rank that ended well can become a failure later, when another one calls MPI_Init.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.failure_causes import aborted, missing, singleton
from mslaunch.launcher.mpi.mpi_frames import CameAlone, Joined, Left, Stranded

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.launcher.job.rank_state import RankState
    from mslaunch.launcher.job_failure import JobFailure


def mpi_failure(event: Any, rank: RankState) -> JobFailure | None:
    """Record an event of `mpi_frames.OF_RANK` in `rank`; the failure that it means, if any."""
    if isinstance(event, Joined):
        rank.used_mpi = rank.in_mpi = True
        gone = rank.world.missing_rank()
        return missing(gone) if gone else None
    if isinstance(event, Left):
        rank.in_mpi = False
        return None
    if isinstance(event, CameAlone):
        return singleton(rank, event)
    if isinstance(event, Stranded) or (event.broken and rank.ended):
        return missing(rank)
    rank.aborted = not event.broken
    return aborted(rank, event)


def exit_failure(rank: RankState) -> JobFailure | None:
    """A rank has ended with 0: the failure that this is for those who wait for it."""
    who = rank.waited_for_by()
    return missing(rank, who) if who else None
