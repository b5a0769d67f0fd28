"""The registry of a job: its hosts, ranks, worlds and services, and the state of each.

`JobState` changes it; others ask it.  Ranks of all worlds are in one table under their numbers in frames.  A host that
is lost keeps its node number.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_plan import is_service
from mslaunch.datamodel.outcome import RankStatus
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.rank_state import MpiWorld, RankState
from mslaunch.launcher.job.service_state import ServiceTable
from mslaunch.launcher.rank_names import RankNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class RankTable:
    """Who takes part in one job; each process of a rank has `streams` streams."""

    def __init__(self, jobmap: JobMap, streams: int) -> None:
        self.hosts = [node.name for node in jobmap.nodes]
        self.alive = set(range(len(self.hosts)))  # nodes whose connection has not ended
        self.names = RankNames()
        self.ranks: dict[int, RankState] = {}
        self.services = ServiceTable()
        self.streams = streams
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
        world.fill([RankState(first + rank, node, self.streams, world) for rank, node in enumerate(nodes)])
        self.ranks.update((rank.rank, rank) for rank in world.ranks)
        return first

    def stream_ended(self, number: int) -> None:
        """One stream of a rank or service has ended."""
        member = (self.services.members if is_service(number) else self.ranks).get(number)
        if member and member.streams:
            member.streams -= 1

    # --- questions

    def running(self) -> dict[str, int]:
        """How many ranks each live host has that have not ended; those about to start count."""
        counts = {self.hosts[node]: 0 for node in self.alive}
        for rank in self.ranks.values():
            if not rank.ended:
                counts[self.hosts[rank.node]] += 1
        return counts

    def ended(self) -> Sequence[int]:
        """The ranks whose process has ended."""
        return [number for number, rank in self.ranks.items() if rank.ended]

    @property
    def ranks_ended(self) -> bool:
        """No process of a rank is left."""
        return all(rank.ended for rank in self.ranks.values())

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
        host, world, status = self.hosts[member.node], member.world.number, member.status
        return RankStatus(member.rank, host, member.pid, status.code, status.signal, member.status_reason, world=world)


def _sorted(members: Iterable[RankState]) -> list[RankState]:
    return sorted(members, key=lambda member: abs(member.rank))
