"""The state of one rank, and of one MPI_COMM_WORLD: what they have done so far, and who waits for whom in MPI.

A rank that ends well without MPI_Init is missed only where others have called it (in a script some ranks need not use
MPI); in a spawned world always, since its parent waits in MPI_Comm_spawn.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class RankState:
    """One rank or service; `rank` is its number in frames."""

    def __init__(self, rank: int, node: int, streams: int, world: MpiWorld | None = None) -> None:
        self.rank = rank
        self.node = node
        self.streams = streams  # that are still open, of all of its processes
        self.world = world or MpiWorld(1)
        self.pid: int | None = None
        self.ended = False
        self.status = ExitStatus()
        self.reason = ""  # as in `RankStatus`
        self.restarts = 0
        self.past: list[ExitStatus] = []  # how its earlier processes ended
        self.used_mpi = False  # has called MPI_Init
        self.in_mpi = False  # has called MPI_Init, and not MPI_Finalize since
        self.aborted = False  # has called MPI_Abort

    @property
    def over(self) -> bool:
        """Its process and its streams have ended."""
        return self.ended and not self.streams

    @property
    def status_reason(self) -> str:
        """`reason` as `RankStatus` has it."""
        if self.reason or self.ended:
            return self.reason
        return "running" if self.pid else "not started"

    @property
    def succeeded(self) -> bool:
        """It ended by itself with 0, and nobody waits for it in MPI."""
        return self.ended and not (self.in_mpi or self.status.shell_code or self.reason)

    @property
    def run_count(self) -> int:
        """How many processes followed the first; the last order to start one may have had no effect."""
        return self.restarts - (self.restarts > 0 and self.pid is None)

    def begin_again(self, streams: int) -> None:
        """Its process has failed, and another one will follow."""
        self.restarts += 1
        self.past.append(self.status)
        self.reset(streams)

    def reset(self, streams: int) -> None:
        """One more process; the streams of the one before end before it starts."""
        self.ended = False
        self.streams += streams
        self.pid = None
        self.used_mpi = self.in_mpi = False

    def waited_for_by(self) -> str:
        """Who waits for it now that it has ended with 0: "others" (for MPI_Finalize), "parent", "mpi", or ""."""
        if self.in_mpi:
            return "others"
        if self.used_mpi or not self.world.mpi:
            return ""
        if self.world.spawned:
            return "parent"
        return "mpi" if any(other.used_mpi for other in self.world.ranks) else ""


class MpiWorld:
    """One MPI_COMM_WORLD; `mpi`: its ranks are expected to call MPI_Init."""

    def __init__(self, number: int, mpi: bool = True) -> None:
        self.number = number
        self.mpi = mpi
        self.ranks: list[RankState] = []
        self.failed = False  # it could not be spawned; what runs of it is killed, and fails nothing
        self._waiting: set[int] = set()  # ranks that have not run yet

    @property
    def spawned(self) -> bool:
        """MPI_Comm_spawn made it."""
        return self.number > 1

    @property
    def complete(self) -> bool:
        """All of its ranks have run."""
        return not self._waiting

    def fill(self, ranks: Sequence[RankState]) -> None:
        """Add its ranks."""
        self.ranks += ranks
        self._waiting.update(rank.rank for rank in ranks)

    def started(self, rank: RankState) -> bool:
        """One of its ranks runs; True if the world was spawned and this was the last rank to start."""
        before = self.complete
        self._waiting.discard(rank.rank)
        return self.spawned and self.complete and not before

    def fail(self) -> list[RankState]:
        """One of its ranks could not be started: returns those that run."""
        self.failed = True
        self._waiting.clear()
        return [rank for rank in self.ranks if rank.pid and not rank.ended]

    def missing_rank(self) -> RankState | None:
        """A rank that has ended by itself without MPI_Init."""
        return next((rank for rank in self.ranks if rank.ended and not rank.used_mpi and not rank.reason), None)
