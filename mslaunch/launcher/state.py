"""The state of a launch: a reducer.  Events come in, actions go out; no descriptor, no clock, no terminal.

It begins when every agent has said HELLO (`connect` sees to that): preparing (addresses and ports), running,
ending.  The failure that ends the job is the cause and gives the exit code; what dies after that is a victim.  With
recovery, ranks may fail and be started again, and only what is no rank's failure ends the job.  The one surprising
thing: a rank is over only when its process *and* its streams have ended, so a failure is acted on at once but the
launch is not finished before the last line has arrived.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, EXIT_TIMEOUT, EXIT_USAGE, LaunchError
from mslaunch.launcher.endings import advice, ending
from mslaunch.launcher.events import (
    Aborted,
    CameAlone,
    End,
    Exited,
    Interrupted,
    Joined,
    Kill,
    Left,
    LinkEnded,
    Prepared,
    Restart,
    Spawned,
    Start,
    Started,
    Stranded,
    StreamEnded,
    TimedOut,
    Trace,
    Traced,
)
from mslaunch.launcher.members import Rank, World
from mslaunch.launcher.worlds import Worlds
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import SERVICE, Failure, JobMap, RankStatus
from mslaunch.plan.hostlist import fold

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
        self.ranks: dict[int, Rank] = {}
        self.add_world([placement.node for placement in jobmap.placements])
        self.service: Rank | None = None
        self.failure: Failure | None = None
        self._overdue: Failure | None = None  # --timeout was reached, but stacks are looked at before the end
        self._tracing: set[int] = set()  # nodes
        self._alive = set(range(len(self.hosts)))
        self._unstarted: dict[str, list[str]] = {}  # why ranks were not started -> hosts
        self._handlers: dict[type, Callable[[Any], list[Any]]] = {
            Prepared: self._prepared,
            Started: self._started,
            Exited: self._exited,
            StreamEnded: self._stream_ended,
            LinkEnded: self._link_ended,
            TimedOut: self._timed_out,
            Traced: self._traced,
            Interrupted: self._interrupted,
            Joined: self._joined,
            Left: self._left,
            Aborted: self._aborted,
            CameAlone: self._came_alone,
            Stranded: lambda event: self._stranded(self.ranks[event.rank]),
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

    def _prepared(self, event: Prepared) -> list[Any]:
        if self.failure:
            return []
        self.phase = RUNNING
        return [Start()]

    def _started(self, event: Started) -> list[Any]:
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

    def _joined(self, event: Joined) -> list[Any]:
        """Who has ended without MPI_Init will never be there."""
        rank = self.ranks[event.rank]
        rank.joined, rank.left = True, False
        gone = rank.world.gone()
        return self._stranded(gone) if gone else []

    def _left(self, event: Left) -> list[Any]:
        self.ranks[event.rank].left = True
        return []

    def _aborted(self, event: Aborted) -> list[Any]:
        rank = self.ranks[event.rank]
        if event.broken:
            what = "does not keep to the protocol of MPI's start-up"
            return self._blame(rank, what, event.code or EXIT_USAGE, (event.text,))
        return self._blame(rank, f"called MPI_Abort with code {event.code}", event.code & 0xFF or EXIT_USAGE)

    def _came_alone(self, event: CameAlone) -> list[Any]:
        rank = self.ranks[event.rank]
        what = f"{self._name(rank)} came up alone, as rank 0 of 1, with {event.family} ({event.library})"
        detail = (advice(event.family, event.offered),)
        return self._fail(Failure(what, self.hosts[rank.node], None, EXIT_USAGE, detail))

    def _check_manners(self, rank: Rank) -> list[Any]:
        """A rank has ended with 0; are there others in its world that will wait for it?"""
        how = rank.rude()
        return self._blame(rank, how, EXIT_USAGE) if how else []

    def _stranded(self, rank: Rank) -> list[Any]:
        return self._blame(rank, "has ended, and others wait for it in MPI", EXIT_USAGE)

    def _blame(self, rank: Rank, what: str, code: int, detail: tuple[str, ...] = ()) -> list[Any]:
        if rank.world.failed:  # who spawned it knows
            return []
        return self._fail(Failure(f"{self._name(rank)} {what}", self.hosts[rank.node], rank.rank, code, detail))

    def _name(self, rank: Rank) -> str:
        return self.worlds.name(rank.rank)

    # --- ends

    def _exited(self, event: Exited) -> list[Any]:
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
        if rank.restarts < self._max_restarts and not self._overdue and not rank.world.spawned:
            rank.restarts += 1
            rank.streams += self._streams  # what is left of its forerunner's end before it begins
            rank.pid = None
            return [Restart(rank.rank, rank.node, how, rank.restarts, self._max_restarts)]
        rank.ended = True
        again = f", started again {rank.restarts} times," if rank.restarts > 1 else ", started again," * rank.restarts
        code = 128 + rank.signal if rank.signal else rank.code or 0
        failure = Failure(f"{self._name(rank)}{again} {how}", self.hosts[rank.node], rank.rank, code)
        if self._recovery or not (self._abort or rank.signal):
            self.failure = self.failure or failure
            return []
        return self._fail(failure)

    def _never_ran(self, rank: Rank, event: Exited) -> list[Any]:
        rank.ended, rank.streams = True, 0
        if not rank.restarts:
            rank.code, rank.reason = event.code, "not started"
            return self._not_spawned(rank.world, event) if rank.world.spawned else self._not_started(event)
        if self.phase == ENDING:
            rank.reason = "ended"
            return []
        rank.code, rank.signal = event.code or EXIT_USAGE, None
        what = f"{self._name(rank)} could not be started again: {event.error}"
        self.failure = self.failure or Failure(what, self.hosts[rank.node], rank.rank, rank.code)
        return []

    def _not_spawned(self, world: World, event: Exited) -> list[Any]:
        """It is those who spawned it that are told, and the job goes on."""
        if world.failed:
            return []
        kills = [Kill(rank.rank, rank.node) for rank in world.fail()]
        return [*kills, Spawned(world.number, f"{event.error}, on {self.hosts[event.node]}")]

    def _not_started(self, event: Exited) -> list[Any]:
        """Said once: the first words, with every host where the same is wrong; other words of other hosts below."""
        host = self.hosts[event.node]
        said = self._unstarted.setdefault(event.error, [])
        if host in said:
            return []
        said.append(host)
        first = next(iter(self._unstarted))
        if event.error != first and self.failure:
            self.failure = self.failure._replace(detail=(*self.failure.detail, f"{host}: {event.error}"))
        elif len(said) > 1 and self.failure and self.failure.what == first:
            self.failure = self.failure._replace(host=fold(sorted(said)))
        detail = tuple(event.todo.splitlines())
        return self._fail(Failure(event.error, host, None, event.code or EXIT_USAGE, detail))

    def _service_exited(self, event: Exited) -> list[Any]:
        if self.phase == PREPARING:
            return self._fail(Failure(event.error, self.hosts[event.node]))
        if self.service is None:  # it never started
            self.service = Rank(SERVICE, event.node, 0)
        self.service.ended, self.service.code, self.service.signal = True, event.code, event.signal
        if self.phase == ENDING or (event.code == 0 and not event.signal) or self._ranks_ended:
            return []
        how = ending(event.code, event.signal)
        what = event.error or f"the MindSpore scheduler {how} while ranks were running"
        return self._fail(Failure(what, self.hosts[event.node], SERVICE, EXIT_USAGE))

    @property
    def _ranks_ended(self) -> bool:
        return all(rank.ended for rank in self.ranks.values())

    def _check_service(self) -> list[Any]:
        """The scheduler is needed until the last rank has ended, and no longer."""
        if self.service and not self.service.ended and self._ranks_ended:
            return [End(tuple(sorted(self._alive)))]
        return []

    def _stream_ended(self, event: StreamEnded) -> list[Any]:
        rank = self.service if event.rank == SERVICE else self.ranks[event.rank]
        if rank and rank.streams:
            rank.streams -= 1
        return []

    def _link_ended(self, event: LinkEnded) -> list[Any]:
        self._alive.discard(event.node)
        host = self.hosts[event.node]
        if self.phase == PREPARING:
            error = event.error or LaunchError("the agent ended before the ranks were started", host, code=EXIT_LOST)
            return self._fail(Failure(error.what, host, None, error.code, tuple(error.todo.splitlines())))
        lost = [rank for rank in self.ranks.values() if rank.node == event.node and not rank.over]
        for rank in lost:
            rank.reason = rank.reason if rank.ended else "lost"
            rank.ended, rank.streams = True, 0
        if self.service and self.service.node == event.node:
            self.service.ended, self.service.streams = True, 0
        if not lost:
            return self._check_service() + self._traced(Traced((event.node,)))
        why = event.error.what if event.error else "its agent ended, or was killed"
        failure = Failure("the host was lost while ranks ran there", host, None, EXIT_LOST, (why,))
        return self._fail(failure) + self._check_service()

    def _timed_out(self, event: TimedOut) -> list[Any]:
        unit = "second" if event.seconds == 1 else "seconds"
        what = f"the job was still running after {event.seconds:g} {unit} ({event.source})"
        failure = Failure(what, code=EXIT_TIMEOUT)
        nodes = {rank.node for rank in self.ranks.values() if rank.pid and not rank.ended} & self._alive
        if not (event.traces and nodes and self.phase == RUNNING):
            return self._fail(failure)
        self.failure = self._overdue = failure
        self._tracing = nodes
        return [Trace(tuple(sorted(nodes)))]

    def _traced(self, event: Traced) -> list[Any]:
        self._tracing.difference_update(event.nodes)
        if self._overdue and not self._tracing and self.phase == RUNNING:
            return self._fail(self._overdue)
        return []

    def _interrupted(self, event: Interrupted) -> list[Any]:
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
        well = any(rank.ended and not (rank.code or rank.signal or rank.reason) for rank in self.ranks.values())
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
