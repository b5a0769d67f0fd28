"""Members: ranks and their worlds as the state of a launch knows them.

What each rank has done so far, and whether others of its world will wait in vain for it in MPI.  Nothing here acts or
ends a job.  The surprising thing: who ends well without MPI_Init is missed only where others have been in it (a job may
run scripts in which only some ranks use MPI), but in a world that was spawned always: who spawned it waits.
"""

from __future__ import annotations

from mslaunch.datamodel.exit_status import ExitStatus
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.messages.exit_text import ending

if TYPE_CHECKING:
    from collections.abc import Sequence


class RankState:
    """What is known of one rank; `rank` is its number in frames."""

    def __init__(self, rank: int, node: int, streams: int, world: WorldState | None = None) -> None:
        self.rank = rank
        self.node = node
        self.streams = streams
        self.world = world or WorldState(1)
        self.pid: int | None = None
        self.ended = False
        self.code: int | None = None
        self.signal: int | None = None
        self.reason = ""
        self.restarts = 0
        self.exit_texts: dict[str, None] = {}  # how the processes before ended, as predicates: each once, in order
        self.joined = False  # it has been in MPI_Init; how often, is its affair
        self.left = True  # it has been in MPI_Finalize since it was in MPI_Init
        self.aborted = False  # it has called MPI_Abort

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
    def status(self) -> int:
        """The shell's number, once it has ended."""
        return ExitStatus(self.code, self.signal).shell_code

    @property
    def succeeded(self) -> bool:
        """It ended by itself, with 0, and missed by nobody."""
        return self.ended and self.left and not (self.status or self.reason)

    @property
    def exit_text(self) -> str:
        """How it ended, in the eyes of those who wait for it in MPI."""
        if self.status:
            return ending(self.code, self.signal)
        if not self.left:
            return "ended without MPI_Finalize"
        return "ended after MPI_Finalize" if self.joined else "ended without MPI_Init"

    @property
    def run_count(self) -> int:
        """How many more processes it has had than one: the last order to start may have come to nothing."""
        return self.restarts - (self.restarts > 0 and self.pid is None)

    def begin_again(self, streams: int) -> None:
        """Its process has failed, and another one follows."""
        self.restarts += 1
        self.exit_texts[ending(self.code, self.signal)] = None
        self.reset(streams)

    def reset(self, streams: int) -> None:
        """One more process: what is left of the streams of the one before ends before it starts."""
        self.ended = False
        self.streams += streams
        self.pid = None
        self.joined, self.left = False, True

    def waited_for_by(self) -> str:
        """It has ended with 0: who waits for it, as a clause; "" if nobody does."""
        if not self.left:
            return "the others would wait"
        if self.joined or not self.world.mpi:
            return ""
        if self.world.spawned:
            return "those who spawned it wait"
        return "others wait in MPI" if any(other.joined for other in self.world.ranks) else ""


class WorldState:
    """One MPI_COMM_WORLD; `mpi`: its ranks are expected in MPI_Init."""

    def __init__(self, number: int, mpi: bool = True) -> None:
        self.number = number
        self.mpi = mpi
        self.ranks: list[RankState] = []
        self.failed = False  # it could not be spawned, and what ran of it is ended without a word
        self._waiting: set[int] = set()  # ranks that have not run yet

    @property
    def spawned(self) -> bool:
        """It is not that of the job."""
        return self.number > 1

    @property
    def starting(self) -> bool:
        """It was spawned, and not all of its ranks run yet."""
        return self.spawned and bool(self._waiting)

    @property
    def complete(self) -> bool:
        """All of its ranks have run."""
        return not self._waiting

    def fill(self, ranks: Sequence[RankState]) -> None:
        """These are its ranks."""
        self.ranks += ranks
        self._waiting.update(rank.rank for rank in ranks)

    def started(self, rank: RankState) -> bool:
        """One of its ranks runs; True if it was spawned and this is the last that was waited for."""
        before = self.starting
        self._waiting.discard(rank.rank)
        return before and not self.starting

    def fail(self) -> list[RankState]:
        """One of its ranks could not be started: returns those that run."""
        self.failed = True
        self._waiting.clear()
        return [rank for rank in self.ranks if rank.pid and not rank.ended]

    def ended_ranks(self) -> RankState | None:
        """A rank that has ended by itself without MPI_Init: it will never be there."""
        return next((rank for rank in self.ranks if rank.ended and not rank.joined and not rank.reason), None)
