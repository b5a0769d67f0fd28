"""The roster: who takes part in a launch (hosts, ranks, worlds, services), and what each of them is doing.

`state` writes it and decides; this room answers questions about it, for tables, reports and who looks for free slots.
The surprising thing: ranks of all worlds are in one list, under the numbers that frames have, and a host that is lost
keeps its place among the hosts.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.outcome import RankStatus
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.rank_state import RankState, WorldState
from mslaunch.launcher.job.service_state import ServiceTable, title
from mslaunch.launcher.rank_names import RankNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WAYS = 3  #: in which a rank that was started again has ended, as far as they are listed


class RankTable:
    """All of one launch; a rank has `streams` streams."""

    def __init__(self, jobmap: JobMap, streams: int) -> None:
        self.hosts = [node.name for node in jobmap.nodes]
        self.worlds = RankNames()
        self.ranks: dict[int, RankState] = {}
        self.services = ServiceTable()
        self._streams = streams
        self._alive = set(range(len(self.hosts)))
        self._begun = False  # the ranks were told to start
        self.first = self._add_world([placement.node for placement in jobmap.placements], True, jobmap.first)

    def add_node(self, host: str) -> int:
        """One more agent is there; returns the number of its node."""
        self._alive.add(len(self.hosts))
        self.hosts.append(host)
        return len(self.hosts) - 1

    def add_world(self, nodes: Sequence[int], mpi: bool = True) -> int:
        """A world that is spawned, whose ranks are about to start, with the node of each.

        Returns the frame's number of its rank 0; `SpawnPlacement` will follow.  `mpi` False: its ranks are not
        expected in MPI_Init.
        """
        return self._add_world(nodes, mpi, 0)

    def _add_world(self, nodes: Sequence[int], mpi: bool, start: int) -> int:
        first = self.worlds.add(len(nodes), start)
        world = WorldState(self.worlds.of(first)[0], mpi)
        ranks = [RankState(first + rank, node, self._streams, world) for rank, node in enumerate(nodes)]
        world.fill(ranks)
        self.ranks.update((rank.rank, rank) for rank in ranks)
        return first

    # --- questions

    def name(self, number: int) -> str:
        """Of a rank or service, as a person knows it."""
        return title(number) if number < 0 else self.worlds.name(number)

    def running(self) -> dict[str, int]:
        """How many ranks each host has that is still there; those about to start count."""
        counts = {self.hosts[node]: 0 for node in self._alive}
        for rank in self.ranks.values():
            if not rank.ended:
                counts[self.hosts[rank.node]] += 1
        return counts

    @property
    def begun(self) -> bool:
        """The ranks were told to start."""
        return self._begun

    @property
    def ranks_ended(self) -> bool:
        """No process of a rank is left."""
        return all(rank.ended for rank in self.ranks.values())

    @property
    def audience(self) -> tuple[int, ...]:
        """The nodes where something was started, and may have to be ended."""
        return tuple(sorted(self._alive if self._begun else self._alive & self.services.nodes))

    @property
    def all_started(self) -> bool:
        """Every rank of the job's own world has run, if only for a moment."""
        return self.ranks[self.first].world.complete

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        """Whose link has ended."""
        return tuple(host for node, host in enumerate(self.hosts) if node not in self._alive)

    @property
    def restarts(self) -> tuple[str, ...]:
        """What was started again by itself, a clause each."""
        members = [*self._by_number(self.services.members.values()), *self._by_number(self.ranks.values())]
        return tuple(self._again(member, times) for member in members if (times := member.run_count))

    def _again(self, member: RankState, times: int) -> str:
        how = " and ".join(list(member.exit_texts)[:_WAYS]) + (
            " and otherwise" if len(member.exit_texts) > _WAYS else ""
        )
        where = f"{self.name(member.rank)} on {self.hosts[member.node]}"
        return f"{where}, which {how}" + (f", {times} times" if times > 1 else "")

    def unfinished(self) -> list[int]:
        """The nodes that still have something to end."""
        ranks = self.ranks.values() if self._begun else ()
        nodes = {one.node for one in (*ranks, *self.services.members.values()) if not one.over}
        return sorted(nodes & self._alive)

    def statuses(self) -> Sequence[RankStatus]:
        """How every rank ended, or that it runs, in rank order."""
        return [self._status(rank) for rank in self._by_number(self.ranks.values())]

    def rank_states(self) -> Sequence[tuple[RankStatus, str]]:
        """The status of every rank, and its state in words."""
        from mslaunch.launcher.messages.timeout_report import state_of

        ranks = [(status, self.ranks[status.rank]) for status in self.statuses()]
        return [(status, state_of(status, rank.restarts, rank.ended, rank.streams)) for status, rank in ranks]

    def service_statuses(self) -> Sequence[RankStatus]:
        """The same of what is no rank, the scheduler first."""
        return [self._status(member) for member in self._by_number(self.services.members.values())]

    def _status(self, member: RankState) -> RankStatus:
        host, world = self.hosts[member.node], member.world.number
        return RankStatus(member.rank, host, member.pid, member.code, member.signal, member.status_reason, world=world)

    @staticmethod
    def _by_number(members: Iterable[RankState]) -> list[RankState]:
        return sorted(members, key=lambda member: (member.rank < 0, abs(member.rank)))
