"""The state of a launch: a reducer.  Events come in, actions go out; no descriptor, no clock, no terminal.

It begins when every agent has said HELLO (`connect` sees to that): preparing (addresses and ports), running,
ending.  The failure that ends the job is the cause and gives the exit code; what dies after that is a victim.  With
recovery, ranks may fail and be started again, and only what is no rank's failure ends the job.  The one surprising
thing: a rank is over only when its process *and* its streams have ended, so a failure is acted on at once but the
launch is not finished before the last line has arrived.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_USAGE
from mslaunch.launcher import events
from mslaunch.launcher.blame import Blame, overdue
from mslaunch.launcher.endings import ending
from mslaunch.launcher.events import End, Kill, Restart, Spawned, Start, Trace
from mslaunch.launcher.members import Rank, World
from mslaunch.launcher.worlds import Worlds
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import SERVICE, Failure, JobMap, RankStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

PREPARING, RUNNING, ENDING = "preparing", "running", "ending"


class JobState:
    """The fold over events.  `on` returns the actions that follow from one."""

    def __init__(
        self,
        jobmap: JobMap,
        streams: int = 2,
        abort_on_failure: bool = True,
        recovery: bool = False,
        max_restarts: int = 0,
    ) -> None:
        """`streams`: how many a rank has.  `abort_on_failure` False: a rank that exits with a bad code ends nothing.

        `recovery`: nor does one that a signal ends.  `max_restarts` says how often each may be started again, and
        implies `recovery`.
        """
        self.hosts = [node.name for node in jobmap.nodes]
        self._streams = streams
        self._abort = abort_on_failure
        self._recovery = recovery or max_restarts > 0
        self._max_restarts = max_restarts
        self.phase = PREPARING
        self.worlds = Worlds()
        self._blame = Blame(self.hosts, self.worlds)
        self.ranks: dict[int, Rank] = {}
        self.add_world([placement.node for placement in jobmap.placements])
        self.service: Rank | None = None
        self.failure: Failure | None = None
        self._overdue: Failure | None = None  # --timeout was reached, but stacks are looked at before the end
        self._tracing: set[int] = set()  # nodes
        self._alive = set(range(len(self.hosts)))
        self._handlers: dict[type, Callable[[Any], list[Any]]] = {
            events.Prepared: self._prepared,
            events.Started: self._started,
            events.Exited: self._exited,
            events.StreamEnded: self._stream_ended,
            events.LinkEnded: self._link_ended,
            events.TimedOut: self._timed_out,
            events.Traced: self._traced,
            events.Interrupted: self._interrupted,
            events.Joined: self._joined,
            events.Left: self._left,
            events.Aborted: self._aborted,
            events.CameAlone: self._came_alone,
            events.Stranded: lambda event: self._missing(self.ranks[event.rank]),
            events.Impossible: lambda event: self._fail(Failure(event.what, detail=(event.todo,))),
        }

    def add_node(self, host: str) -> int:
        """One more agent is there; returns the number of its node."""
        self._alive.add(len(self.hosts))
        self.hosts.append(host)
        return len(self.hosts) - 1

    def add_world(self, nodes: Sequence[int], mpi: bool = True) -> int:
        """A world whose ranks are about to start, with the node of each; returns the frame's number of its rank 0.

        `Spawned` will follow, but for the first one.  `mpi` False: its ranks are not expected in MPI_Init.
        """
        first = self.worlds.add(len(nodes))
        world = World(self.worlds.of(first)[0], mpi)
        ranks = [Rank(first + rank, node, self._streams, world) for rank, node in enumerate(nodes)]
        world.fill(ranks)
        self.ranks.update((rank.rank, rank) for rank in ranks)
        return first

    def running(self) -> dict[str, int]:
        """How many ranks each host has that is still there; those about to start count."""
        counts = {self.hosts[node]: 0 for node in self._alive}
        for rank in self.ranks.values():
            if not rank.ended:
                counts[self.hosts[rank.node]] += 1
        return counts

    def on(self, event: Any) -> list[Any]:
        """Take in one event; returns the actions to be carried out, in order."""
        return self._handlers[type(event)](event)

    @property
    def finished(self) -> bool:
        """Nothing is left to wait for."""
        if self.phase == PREPARING:
            return self.failure is not None
        return all(rank.over for rank in self.ranks.values()) and (self.service is None or self.service.over)

    # --- before the ranks run

    def _prepared(self, event: events.Prepared) -> list[Any]:
        if self.failure:
            return []
        self.phase = RUNNING
        return [Start()]

    def _started(self, event: events.Started) -> list[Any]:
        if event.rank == SERVICE:
            self.service = Rank(SERVICE, event.node, 2)
            self.service.pid = event.pid
            return []
        rank = self.ranks[event.rank]
        rank.pid = event.pid
        if rank.world.failed:
            return [Kill(rank.rank, rank.node)]
        return [Spawned(rank.world.number)] if rank.world.started(rank) else []

    # --- MPI

    def _joined(self, event: events.Joined) -> list[Any]:
        """Who has ended without MPI_Init will never be there."""
        rank = self.ranks[event.rank]
        rank.joined, rank.left = True, False
        gone = rank.world.gone()
        return self._missing(gone) if gone else []

    def _left(self, event: events.Left) -> list[Any]:
        self.ranks[event.rank].left = True
        return []

    def _aborted(self, event: events.Aborted) -> list[Any]:
        rank = self.ranks[event.rank]
        if event.broken and rank.ended:  # all that can still be wrong is that it is waited for
            return self._missing(rank)
        return self._fail_with(rank, self._blame.aborted(rank, event))

    def _came_alone(self, event: events.CameAlone) -> list[Any]:
        rank = self.ranks[event.rank]
        return self._fail_with(rank, self._blame.alone(rank, event))

    def _check_manners(self, rank: Rank) -> list[Any]:
        """A rank has ended with 0; are there others in its world that will wait for it?

        With recovery the others may go on without one that has not finalized, as without one that was killed, until
        they wait for it.
        """
        who = rank.missed_by()
        if not who:
            return []
        failure = self._blame.missing(rank, who)
        if self._recovery and not rank.left:
            self.failure = self.failure or failure
            return []
        return self._fail_with(rank, failure)

    def _missing(self, rank: Rank) -> list[Any]:
        return self._fail_with(rank, self._blame.missing(rank))

    def _fail_with(self, rank: Rank, failure: Failure) -> list[Any]:
        return [] if rank.world.failed else self._fail(failure)  # who spawned it knows

    # --- ends

    def _exited(self, event: events.Exited) -> list[Any]:
        if event.rank == SERVICE:
            return self._service_exited(event)
        rank = self.ranks[event.rank]
        if event.error:
            return self._never_ran(rank, event) + self._check_service()
        rank.code, rank.signal = event.code, event.signal
        quiet = self.phase == ENDING or rank.world.failed
        if not quiet and (event.signal or event.code):
            return self._rank_failed(rank) + self._check_service()
        rank.ended = True
        if quiet:
            rank.reason = "ended"
            return self._check_service()
        return self._check_manners(rank) + self._check_service()

    def _rank_failed(self, rank: Rank) -> list[Any]:
        how = ending(rank.code, rank.signal)
        again = rank.restarts < self._max_restarts and rank.left and not rank.world.spawned
        if again and not self._overdue:
            rank.begin_again(self._streams)
            return [Restart(rank.rank, rank.node, how, rank.restarts, self._max_restarts)]
        rank.ended = True
        failure = self._blame.failed(rank)
        if self._max_restarts and not rank.left:
            why = "not started again: it was between MPI_Init and MPI_Finalize, and the others would not know a new one"
            return self._fail(failure._replace(detail=(why,)))
        if self._recovery or not (self._abort or rank.signal):
            self.failure = self.failure or failure
            who = rank.left and rank.missed_by()
            return self._fail_with(rank, self._blame.missing(rank, who)) if who else []
        return self._fail(failure)

    def _never_ran(self, rank: Rank, event: events.Exited) -> list[Any]:
        rank.ended, rank.streams = True, 0
        if not rank.restarts:
            rank.code, rank.reason = event.code, "not started"
            return self._not_spawned(rank.world, event) if rank.world.spawned else self._not_started(event)
        if self.phase == ENDING:
            rank.reason = "ended"
            return []
        rank.code, rank.signal = event.code or EXIT_USAGE, None
        self.failure = self.failure or self._blame.not_again(rank, event.error)
        return []

    def _not_spawned(self, world: World, event: events.Exited) -> list[Any]:
        """It is those who spawned it that are told, and the job goes on."""
        if world.failed:
            return []
        kills = [Kill(rank.rank, rank.node) for rank in world.fail()]
        return [*kills, Spawned(world.number, f"{event.error}, on {self.hosts[event.node]}")]

    def _not_started(self, event: events.Exited) -> list[Any]:
        """Said once, with every host."""
        if self.failure:
            self.failure = self._blame.not_started_either(event, self.failure)
        return self._fail(self._blame.not_started(event))

    def _service_exited(self, event: events.Exited) -> list[Any]:
        if self.phase == PREPARING:
            return self._fail(Failure(event.error, self.hosts[event.node]))
        if self.service is None:  # it never started
            self.service = Rank(SERVICE, event.node, 0)
        self.service.ended, self.service.code, self.service.signal = True, event.code, event.signal
        if self.phase == ENDING or (event.code == 0 and not event.signal) or self._ranks_ended:
            return []
        return self._fail(self._blame.service(event))

    @property
    def _ranks_ended(self) -> bool:
        return all(rank.ended for rank in self.ranks.values())

    def _check_service(self) -> list[Any]:
        """The scheduler is needed until the last rank has ended, and no longer."""
        if self.service and not self.service.ended and self._ranks_ended:
            return [End(tuple(sorted(self._alive)))]
        return []

    def _stream_ended(self, event: events.StreamEnded) -> list[Any]:
        rank = self.service if event.rank == SERVICE else self.ranks[event.rank]
        if rank and rank.streams:
            rank.streams -= 1
        return []

    def _link_ended(self, event: events.LinkEnded) -> list[Any]:
        self._alive.discard(event.node)
        if self.phase == PREPARING:
            return self._fail(self._blame.unready(event.node, event.error))
        lost = [rank for rank in self.ranks.values() if rank.node == event.node and not rank.over]
        for rank in lost:
            rank.reason = rank.reason if rank.ended else "lost"
            rank.ended, rank.streams = True, 0
        if self.service and self.service.node == event.node:
            self.service.ended, self.service.streams = True, 0
        if not lost:
            return self._check_service() + self._traced(events.Traced((event.node,)))
        return self._fail(self._blame.lost(event.node, event.error)) + self._check_service()

    def _timed_out(self, event: events.TimedOut) -> list[Any]:
        failure = overdue(event)
        nodes = {rank.node for rank in self.ranks.values() if rank.pid and not rank.ended} & self._alive
        if not (event.traces and nodes and self.phase == RUNNING):
            return self._fail(failure)
        self.failure = self._overdue = failure
        self._tracing = nodes
        return [Trace(tuple(sorted(nodes)))]

    def _traced(self, event: events.Traced) -> list[Any]:
        self._tracing.difference_update(event.nodes)
        if self._overdue and not self._tracing and self.phase == RUNNING:
            return self._fail(self._overdue)
        return []

    def _interrupted(self, event: events.Interrupted) -> list[Any]:
        return self._fail(Failure(f"ended by {event.signal}", code=EXIT_USAGE), again=True)

    def _fail(self, failure: Failure, again: bool = False) -> list[Any]:
        """The first failure to come here ends the job; an order that is given `again` ends it at once."""
        if self.phase == PREPARING:
            self.failure = self.failure or failure
            return []
        if self.phase == ENDING:
            if again:
                return [End(tuple(sorted(self._alive)), now=True)]
            return []
        self.phase = ENDING
        self.failure = self._overdue or failure  # and not that of a rank which ended nothing
        return [End(tuple(sorted(self._alive)))]

    # --- the end

    @property
    def recovered(self) -> bool:
        """Ranks failed, the others went on, and at least one of them ended well: what recovery is asked for."""
        well = any(rank.well for rank in self.ranks.values())
        return self._recovery and self.phase == RUNNING and not self._overdue and well

    @property
    def code(self) -> int:
        """The exit code of the launch, as far as ranks and agents have a say in it."""
        return 0 if self.failure is None or self.recovered else self.failure.code

    def unfinished(self) -> list[int]:
        """The nodes that still have something to end."""
        nodes = {rank.node for rank in self.ranks.values() if not rank.over}
        if self.service and not self.service.over:
            nodes.add(self.service.node)
        return sorted(nodes & self._alive)

    def statuses(self) -> Sequence[RankStatus]:
        """How every rank ended, or that it runs, in rank order."""
        ranks = sorted(self.ranks.values(), key=lambda rank: rank.rank)
        return [
            RankStatus(r.rank, self.hosts[r.node], r.pid, r.code, r.signal, r.shown, world=r.world.number)
            for r in ranks
        ]
