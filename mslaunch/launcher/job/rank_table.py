"""Who takes part in a job: its hosts, ranks, MPI worlds and services, and the state of each.

`JobState` changes it; others ask it.  Ranks of all worlds are in one table under their numbers in frames; services have
negative numbers.  A host that is lost keeps its node number.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_plan import is_service
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.datamodel.outcome import RankStatus
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher.rank_names import RankNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.launcher.job import events

_SERVICE_STREAMS = 2


class RankState:
    """One rank or service; `rank` is its number in frames.

    What is true of every rank before it starts stands in the class, which takes half the time and memory.
    """

    pid: int | None = None
    ended = False
    status = ExitStatus()
    reason = ""  # as in `RankStatus`
    began = 0.0  # when its process has started, in seconds of `events.Started`
    restarts = 0
    quick = 0  # failures in a row, each soon after its process has started
    past: tuple[ExitStatus, ...] = ()  # how its earlier processes ended
    used_mpi = False  # has called MPI_Init
    in_mpi = False  # has called MPI_Init, and not MPI_Finalize since
    aborted = False  # has called MPI_Abort

    def __init__(self, rank: int, node: int, streams: int, world: MpiWorld | None = None) -> None:
        self.rank = rank
        self.node = node
        self.streams = streams  # that are still open, of all of its processes
        self._each = streams  # of one process
        self.world = world or MpiWorld(1)

    @property
    def over(self) -> bool:
        """Its process and its streams have ended."""
        return self.ended and not self.streams

    @property
    def killed(self) -> bool:
        """It was ended by us, as far as one can tell: its agent was to end it, or its world could not be spawned.

        No agent sends other signals than TERM and KILL to end a process.
        """
        asked = self.status.asked and self.status.signal in (None, signal.SIGTERM, signal.SIGKILL)
        return asked or self.world.failed

    @property
    def succeeded(self) -> bool:
        """It ended by itself with 0, and nobody waits for it in MPI."""
        return self.ended and not (self.in_mpi or self.status.shell_code or self.reason)

    @property
    def run_count(self) -> int:
        """How many processes followed the first; the last order to start one may have had no effect."""
        return self.restarts - (self.restarts > 0 and self.pid is None)

    def begin_again(self, steady: bool = True) -> None:
        """Its process has failed, and will be restarted; `steady`: it has run for long."""
        self.restarts += 1
        self.quick = 1 if steady else self.quick + 1
        self.past += (self.status,)
        self.reset()

    def reset(self) -> None:
        """One more process; the streams of the one before end before it starts."""
        self.ended = False
        self.streams += self._each
        self.pid = None
        self.in_mpi = False
        self.use_mpi(False)

    def end(self) -> None:
        """Its process has ended, and no other will start."""
        self.ended = True
        self.world.ended(self)

    def use_mpi(self, on: bool) -> None:
        """It has called MPI_Init, or is to begin again."""
        self.world.in_use += on - self.used_mpi
        self.used_mpi = on

    def lose(self) -> None:
        """Its host was lost."""
        self.reason = self.reason if self.ended else "lost"
        self.ended, self.streams = True, 0

    def waited_for_by(self) -> str:
        """Who waits for it now that it has ended with 0: "others" (for MPI_Finalize), "parent", "mpi", or "".

        A rank that ends well without MPI_Init is missed only where others have called it, since in a script some ranks
        need not use MPI; in a spawned world always, since its parent waits in MPI_Comm_spawn.
        """
        if self.in_mpi:
            return "others"
        if self.used_mpi or not self.world.mpi:
            return ""
        if self.world.spawned:
            return "parent"
        return "mpi" if self.world.in_use else ""


class MpiWorld:
    """One MPI_COMM_WORLD; `mpi`: its ranks are expected to call MPI_Init."""

    def __init__(self, number: int, mpi: bool = True) -> None:
        self.number = number
        self.mpi = mpi
        self.ranks: list[RankState] = []
        self.failed = False  # it could not be spawned; what runs of it is killed, and fails nothing
        self.in_use = 0  # ranks that have called MPI_Init
        self._waiting: set[int] = set()  # ranks that have not run yet
        self._without: list[RankState] = []  # ranks that have ended without MPI_Init

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
        self._waiting.update([rank.rank for rank in ranks])

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
        """The first rank that has ended by itself without MPI_Init; asked whenever one calls that."""
        found = [rank for rank in self._without if not rank.used_mpi and not rank.reason]
        return min(found, key=lambda rank: rank.rank, default=None)

    def ended(self, rank: RankState) -> None:
        """The process of one of its ranks has ended."""
        if not rank.used_mpi:
            self._without.append(rank)


class ServiceTable:
    """The services of one job: processes that are no ranks.

    A service that is started on demand is not in the table before it runs; one that ended well may run again.
    """

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
        member = self.members.setdefault(number, RankState(number, node, _SERVICE_STREAMS))
        if member.ended:
            member.reset()
        member.pid = pid

    def exited(self, event: events.Exited) -> RankState:
        """A service has ended, or could not be started; returns it."""
        member = self.members.setdefault(event.rank, RankState(event.rank, event.node, _SERVICE_STREAMS))
        member.ended, member.status = True, event.status
        if member.pid is None:  # no process, no streams
            member.streams = 0
        return member

    def lost(self, node: int) -> list[int]:
        """A host was lost; returns the services that were needed there."""
        lost = [number for number, member in self.members.items() if member.node == node and not member.ended]
        lost += [number for number, at in self._nodes.items() if at == node and number not in self.members]
        for member in self.members.values():
            if member.node == node:
                member.lose()
        return sorted(lost, reverse=True)

    @property
    def running(self) -> bool:
        """A service has not ended."""
        return not all(member.ended for member in self.members.values())

    @property
    def over(self) -> bool:
        """The processes and streams of all services have ended."""
        return all(member.over for member in self.members.values())


class RankTable:
    """Who takes part in one job; each process of a rank has `streams` streams."""

    def __init__(self, jobmap: JobMap, streams: int) -> None:
        self.hosts = [node.name for node in jobmap.nodes]
        self.alive = set(range(len(self.hosts)))  # nodes whose connection has not ended
        self.names = RankNames()
        self.ranks: dict[int, RankState] = {}
        self._on: dict[int, list[RankState]] = {}  # by node
        self._all: list[RankState] = []
        self._ended = self._over = 0  # so many of them, from the first on, have ended or are over, and remain it
        self.services = ServiceTable()
        self._streams = streams
        self.first = self.add_world([placement.node for placement in jobmap.placements], first=jobmap.first)

    def add_node(self, host: str) -> int:
        """One more agent is there; returns the number of its node."""
        self.alive.add(len(self.hosts))
        self.hosts.append(host)
        return len(self.hosts) - 1

    def add_world(self, nodes: Sequence[int], mpi: bool = True, first: int = 0) -> int:
        """A world whose ranks are about to start, on these nodes; returns the number of its rank 0 in frames.

        `mpi` False: its ranks are not expected to call MPI_Init.  `first`: the number of the job's first rank.
        """
        first = self.names.add(len(nodes), first)
        world = MpiWorld(self.names.of(first)[0], mpi)
        world.fill([RankState(first + rank, node, self._streams, world) for rank, node in enumerate(nodes)])
        self.ranks.update(zip(range(first, self.names.end), world.ranks))
        self._all += world.ranks
        for rank, node in zip(world.ranks, nodes):
            self._on.setdefault(node, []).append(rank)
        return first

    def leave_out(self, ranks: Iterable[int]) -> None:
        """The job ends before these were to start."""
        for rank in map(self.ranks.__getitem__, ranks):
            if not rank.ended:
                rank.ended, rank.streams, rank.reason = True, 0, "not started"

    def stream_ended(self, number: int) -> None:
        """One stream of a rank or service has ended."""
        member = (self.services.members if is_service(number) else self.ranks).get(number)
        if member and member.streams:
            member.streams -= 1

    # --- questions

    def on(self, node: int) -> Sequence[RankState]:
        """The ranks of a node."""
        return self._on.get(node, ())

    def running(self) -> dict[str, int]:
        """How many ranks each live host has that have not ended; those about to start count."""
        counts = {self.hosts[node]: 0 for node in self.alive}
        for rank in self.ranks.values():
            if not rank.ended:
                counts[self.hosts[rank.node]] += 1
        return counts

    def in_mpi(self, number: int) -> bool:
        """Whether a rank runs, and is between MPI_Init and MPI_Finalize."""
        rank = self.ranks.get(number)
        return rank is not None and rank.in_mpi and not rank.ended

    def ended(self) -> Sequence[int]:
        """The ranks whose process has ended."""
        return [number for number, rank in self.ranks.items() if rank.ended]

    @property
    def ranks_ended(self) -> bool:
        """No process of a rank is left.  Asked for each that ends, so those known to have ended are not looked at."""
        while self._ended < len(self._all) and self._all[self._ended].ended:
            self._ended += 1
        return self._ended == len(self._all)

    @property
    def ranks_over(self) -> bool:
        """No process and no stream of a rank is left; asked in each round of the loop."""
        while self._over < len(self._all) and self._all[self._over].over:
            self._over += 1
        return self._over == len(self._all)

    @property
    def all_started(self) -> bool:
        """Every rank of the job's own world has run, if only for a moment."""
        return self.ranks[self.first].world.complete

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        """The hosts whose connection has ended."""
        return tuple(host for node, host in enumerate(self.hosts) if node not in self.alive)

    def unfinished(self, begun: bool) -> list[int]:
        """The live nodes where a process or stream has not ended; ranks count once they have `begun`."""
        ranks = self.ranks.values() if begun else ()
        nodes = {member.node for member in (*ranks, *self.services.members.values()) if not member.over}
        return sorted(nodes & self.alive)

    def restarted(self) -> list[RankState]:
        """The services, then the ranks, that were restarted by themselves."""
        members = [*_sorted(self.services.members.values()), *_sorted(self.ranks.values())]
        return [member for member in members if member.run_count]

    def statuses(self) -> Sequence[RankStatus]:
        """How every rank ended, or that it runs, in rank order."""
        return [self._status(rank) for rank in _sorted(self.ranks.values())]

    def rank_states(self) -> Sequence[tuple[RankStatus, str]]:
        """The status of every rank, and its state in words."""
        from mslaunch.launcher.messages.timeout_report import state_of

        ranks = [(status, self.ranks[status.rank]) for status in self.statuses()]
        return [(status, state_of(status, rank.restarts, rank.ended, rank.streams)) for status, rank in ranks]

    def service_statuses(self) -> Sequence[RankStatus]:
        """The same for the services, the first one first."""
        return [self._status(member) for member in _sorted(self.services.members.values())]

    def _status(self, member: RankState) -> RankStatus:
        host, world, status, reason = self.hosts[member.node], member.world.number, member.status, member.reason
        if not (reason or member.ended):
            reason = "running" if member.pid else "not started"
        return RankStatus(member.rank, host, member.pid, status.code, status.signal, reason, world=world)


def _sorted(members: Iterable[RankState]) -> list[RankState]:
    return sorted(members, key=lambda member: abs(member.rank))
