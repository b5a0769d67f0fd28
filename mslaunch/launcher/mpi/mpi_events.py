"""Events of MPI programs, for the state of the job."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mslaunch.launcher.job_failure import JobFailure


class Joined(NamedTuple):
    """A rank is in MPI_Init."""

    rank: int


class Left(NamedTuple):
    """A rank has called MPI_Finalize."""

    rank: int


class Aborted(NamedTuple):
    """A rank called MPI_Abort, or (`broken`) violates the protocol of MPI's start-up, as `text` says."""

    rank: int
    code: int
    text: str = ""
    broken: bool = False


class CameAlone(NamedTuple):
    """A rank runs an MPI library that it was offered no protocol for, and came up as a singleton."""

    rank: int
    library: str
    family: str
    offered: str


class Stranded(NamedTuple):
    """Others wait in a collective for a rank that has ended."""

    rank: int


class Impossible(NamedTuple):
    """Ranks wait for something that cannot be done."""

    failure: JobFailure


#: those that are about one rank
OF_RANK = (Joined, Left, Aborted, CameAlone, Stranded)
