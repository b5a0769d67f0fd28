"""The state of a launch: a reducer.  Events come in, actions go out; no descriptor, no clock, no terminal.

It begins when every agent has said HELLO (`connect` sees to that): preparing (addresses and ports), starting (services
that ranks need), running, ending.  Who takes part is in the `roster`.  The failure that ends the job is the cause and
gives the exit code; what dies after that is a victim.  With recovery, ranks may fail and be started again, and only
what is no rank's failure ends the job.  The one surprising thing: a rank is over only when its process *and* its
streams have ended, so a failure is acted on at once but the launch is not finished before the last line has arrived.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_plan import NO_RANK, is_service
from mslaunch.datamodel.outcome import Failure
from mslaunch.errors import EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher.job import events
from mslaunch.launcher.job.events import End, Idle, Kill, Restart, Serve, Spawned, Start, Trace
from mslaunch.launcher.job.failure_causes import overdue, unread
from mslaunch.launcher.job.mpi_exit_rules import MpiExitRules
from mslaunch.launcher.job.rank_state import RankState, WorldState
from mslaunch.launcher.job.restart_policy import RestartPolicy
from mslaunch.launcher.messages.exit_text import ending

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PREPARING, STARTING, RUNNING, ENDING = "preparing", "starting", "running", "ending"


class JobState(MpiExitRules):
    """The fold over events.  `on` returns the actions that follow from one."""

    def __init__(
        self,
        jobmap: JobMap,
        streams: int = 2,
        abort_on_failure: bool = True,
        recovery: bool = False,
        max_restarts: int = 0,
        restart: str = "",
        shared: bool = False,
    ) -> None:
        """`streams`: of each rank; `shared`: ranks of other launchers need the services; the rest: `RestartPolicy`."""
        super().__init__(jobmap, streams, RestartPolicy(abort_on_failure, recovery, max_restarts, restart))
        self.phase = PREPARING
        self._by_host = False  # the failure is the loss of one
        self._shared = shared
        self._stopped = False  # somebody wants no more of this job: Ctrl-C, --timeout, a reader that has gone
        self._overdue: Failure | None = None  # --timeout was reached, but stacks are looked at before the end
        self._tracing: set[int] = set()  # nodes
        self._handlers: dict[type, Callable[[Any], list[Any]]] = {
            events.Prepared: self._prepared,
            events.Serves: self._serves,
            events.Unserved: self._unserved,
            events.Started: self._started,
            events.Exited: self._exited,
            events.StreamEnded: self._stream_ended,
            events.LinkEnded: self._link_ended,
            events.TimedOut: self._timed_out,
            events.Traced: self._traced,
            events.Interrupted: self._interrupted,
            events.Signalled: lambda event: self._forward(event.signum),
            events.Suspended: lambda event: [*self._forward(signal.SIGSTOP), events.Suspend()],
            events.Resumed: lambda event: [*self._forward(signal.SIGCONT), *[events.ResumeInput()] * self._begun],
            events.Unread: lambda event: [] if self.ranks_ended else self._stop(unread()),
            **self._of_mpi(),
        }

    def on(self, event: Any) -> list[Any]:
        """Take in one event; returns the actions to be carried out, in order."""
        return self._handlers[type(event)](event)

    @property
    def finished(self) -> bool:
        """Nothing is left to wait for."""
        if self.phase in (PREPARING, STARTING):
            return self.phase == PREPARING and self.failure is not None
        return self.services.over and (not self._begun or all(rank.over for rank in self.ranks.values()))

    # --- before the ranks run

    def _prepared(self, event: events.Prepared) -> list[Any]:
        if self.failure:
            return []
        if not event.services:
            return self._begin()
        self.phase = STARTING
        self.services.expect(event.services)
        return [Serve(tuple(sorted(self.services.nodes)))]

    def _serves(self, event: events.Serves) -> list[Any]:
        last = self.services.ready(event.service)
        return self._begin() if last and self.phase == STARTING else []

    def _unserved(self, event: events.Unserved) -> list[Any]:
        return self._begin() if self.phase == STARTING else []

    def _begin(self) -> list[Any]:
        self.phase = RUNNING
        self._begun = True
        return [Start()]

    def _started(self, event: events.Started) -> list[Any]:
        if is_service(event.rank):
            self.services.started(event.rank, event.node, event.pid)
            return []
        rank = self.ranks[event.rank]
        rank.pid = event.pid
        if rank.world.failed:
            return [Kill(rank.rank, rank.node)]
        return [Spawned(rank.world.number)] if rank.world.started(rank) else []

    # --- ends

    def _exited(self, event: events.Exited) -> list[Any]:
        if event.rank == NO_RANK:  # no port could be held there
            return self._fail(self._blame.ports_failed(event)) if self.phase == PREPARING else []
        if is_service(event.rank):
            return self._service_exited(event)
        rank = self.ranks[event.rank]
        if event.error:
            return self._never_ran(rank, event) + self._check_services()
        rank.code, rank.signal = event.code, event.signal
        quiet = self.phase == ENDING or rank.world.failed
        if not quiet and (event.signal or event.code):
            return self._rank_failed(rank) + self._check_services()
        rank.ended = True
        if quiet:
            rank.reason = "" if self._was_first(rank, event.asked) else "ended"
            return self._check_services()
        return self._check_mpi_exit(rank) + self._check_services()

    def _was_first(self, rank: RankState, asked: bool) -> bool:
        """It ended by itself, and others aborted for it: it is the cause."""
        if asked or rank.world.failed or (rank.left and not rank.signal):
            return False
        blame = self._blame
        failure = blame.failed(rank) if rank.status else blame.missing(rank, rank.waited_for_by())
        return self._replace_cause(failure, rank)

    def _rank_failed(self, rank: RankState) -> list[Any]:
        if self._rules.again(rank) and not self._overdue:
            rank.begin_again(self._streams)
            return [self._restart(rank, self._rules.rank_limit)]
        rank.ended = True
        failure = self._blame.failed(rank)
        if self._rules.rank_limit and not rank.left:
            why = "not started again: it was between MPI_Init and MPI_Finalize, and the others would not know a new one"
            return self._fail(failure._replace(detail=(why,)))
        if self._rules.ends_job(rank):
            return self._fail(failure)
        self.failure = self.failure or failure
        who = rank.left and rank.waited_for_by()
        return self._fail_with(rank, self._blame.missing(rank, who)) if who else []

    @staticmethod
    def _restart(member: RankState, limit: int) -> Restart:
        how = ending(member.code, member.signal)
        return Restart(member.rank, member.node, how, member.restarts, limit)

    def _never_ran(self, rank: RankState, event: events.Exited) -> list[Any]:
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

    def _not_spawned(self, world: WorldState, event: events.Exited) -> list[Any]:
        """It is those who spawned it that are told, and the job goes on."""
        if world.failed:
            return []
        kills = [Kill(rank.rank, rank.node) for rank in world.fail()]
        return [*kills, Spawned(world.number, f"{event.error}, on {self.hosts[event.node]}")]

    def _not_started(self, event: events.Exited) -> list[Any]:
        """Said once, with every host."""
        if self.failure:
            self.failure = self._blame.merge_not_started(event, self.failure)
        return self._fail(self._blame.not_started(event))

    # --- services

    def _service_exited(self, event: events.Exited) -> list[Any]:
        member = self.services.exited(event)
        well = not (event.code or event.signal or event.error)
        if self.phase == ENDING or (self._begun and (well or self.ranks_ended)):
            member.reason = "" if well else "ended"  # by us, for nobody needs it any more
            return []
        if self._begun and self._rules.service_again(member) and not (event.error or self._overdue):
            self.services.begin_again(member)
            return [self._restart(member, self._rules.service_limit)]
        return self._fail(self._blame.service(member, event, self._begun))

    def _check_services(self) -> list[Any]:
        """They are needed until the last rank has ended, and no longer."""
        if not (self.services.running and self.ranks_ended):
            return []
        nodes = tuple(sorted(self._alive))
        return [Idle(nodes)] if self._shared and self.phase == RUNNING else [End(nodes)]

    # --- links, orders

    def _stream_ended(self, event: events.StreamEnded) -> list[Any]:
        members = self.services.members if is_service(event.rank) else self.ranks
        member = members.get(event.rank)
        if member and member.streams:
            member.streams -= 1
        return []

    def _link_ended(self, event: events.LinkEnded) -> list[Any]:
        self._alive.discard(event.node)
        missed = self.services.lost(event.node)
        if not self._begun:
            return self._fail_by_host(self._blame.agent_lost_early(event.node, event.error))
        lost = [rank for rank in self.ranks.values() if rank.node == event.node and not rank.over]
        cut = not event.given_up and not all(rank.ended for rank in lost)
        for rank in lost:
            rank.reason = rank.reason if rank.ended else "lost"
            rank.ended, rank.streams = True, 0
        if lost:
            failure = self._blame.lost(event.node, event.error)
            if cut:
                self._replace_cause(failure, *(rank for rank in self.ranks.values() if rank.node == event.node))
            return self._fail_by_host(failure) + self._check_services()
        if missed and not self.ranks_ended:
            return self._fail_by_host(self._blame.service_lost(missed, event.node, event.error))
        return self._check_services() + self._traced(events.Traced((event.node,)))

    def _fail_by_host(self, failure: Failure) -> list[Any]:
        actions = self._fail(failure)
        self._by_host = self._by_host or self.failure is failure
        return actions

    def _timed_out(self, event: events.TimedOut) -> list[Any]:
        failure = overdue(event)
        self._stopped = True
        report = [events.ReportState(event.seconds)] if event.report and self.phase == RUNNING else []
        return [*report, *self._end_overdue(event, failure), events.DropOutput(event.traces)]

    def _end_overdue(self, event: events.TimedOut, failure: Failure) -> list[Any]:
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
        known = self.phase in (RUNNING, ENDING)
        notice = [events.Notice(event.signal, self.phase == ENDING)] if known else []
        failure = Failure(f"ended by {event.signal}", code=EXIT_USAGE)
        return [*notice, *self._stop(failure, again=True), events.DropOutput()]

    def _forward(self, signum: int) -> list[Any]:
        return [events.Forward(int(signum))] if self._begun else []

    def _stop(self, failure: Failure, again: bool = False) -> list[Any]:
        """Nobody wants more of this job."""
        self._stopped = True
        return self._fail(failure, again)

    def _fail(self, failure: Failure, again: bool = False) -> list[Any]:
        """The first failure to come here ends the job; an order that is given `again` ends it at once."""
        if self.phase == PREPARING:
            self.failure = self.failure or failure
            return []
        if self.phase == ENDING:
            return [End(self.audience, now=True)] if again else []
        self.phase = ENDING
        self.failure = self._overdue or failure  # and not that of a rank which ended nothing
        return [End(self.audience)]

    # --- the end

    @property
    def recovered(self) -> bool:
        """Ranks failed, the others went on, and at least one of them ended well: what recovery is asked for."""
        well = any(rank.succeeded for rank in self.ranks.values())
        return self._rules.survives and self.phase == RUNNING and not self._overdue and well

    @property
    def code(self) -> int:
        """The exit code of the launch, as far as ranks and agents have a say in it."""
        return 0 if self.failure is None or self.recovered else self.failure.code

    @property
    def restartable(self) -> bool:
        """With `restart` "group": what ended the job may be otherwise another time.

        It is not so of what somebody ordered, and of what cannot be started at all.
        """
        failure = self.failure
        if failure is None or self._stopped or not self._rules.group:
            return False
        return self._by_host or (failure.rank is not None and self._begun)
