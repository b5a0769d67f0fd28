"""The state of a job: a reducer.  Events come in, actions go out; no descriptor, no clock, no terminal.

The phases: preparing (addresses and ports), starting (services that ranks need), running, ending.  The failure that
ends the job is the cause and gives the exit code; what fails after that is a victim.  With recovery, a rank that fails
may be restarted or left out.  A rank is over when its process *and* its streams have ended, so a failure is acted on at
once, but the job is not finished before the last output has come.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_RANK, is_service
from mslaunch.errors import EXIT_LOST, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher import job_failure
from mslaunch.launcher.job import events, first_cause
from mslaunch.launcher.job.events import End, Idle, Kill, Notify, Restart, Serve, Spawned, Start
from mslaunch.launcher.job.rank_table import RankTable
from mslaunch.launcher.job.restart_policy import DEFAULT, RestartPolicy
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.launcher.mpi import mpi_frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.launcher.job.program_starts import ProgramStarts
    from mslaunch.launcher.job.rank_table import MpiWorld, RankState
    from mslaunch.launcher.job.stack_rounds import StackRounds

PREPARING, STARTING, RUNNING, ENDING = "preparing", "starting", "running", "ending"


class JobState:
    """The fold over events.  `on` returns the actions that follow from one."""

    def __init__(
        self,
        jobmap: JobMap,
        policy: RestartPolicy = DEFAULT,
        streams: int = 2,
        grace: float = 0.0,
        shared: bool = False,
        order: ProgramStarts | None = None,
    ) -> None:
        """`streams` of each rank; `grace` in seconds; `shared`: other launchers need services; `order` of --ready."""
        self.table = RankTable(jobmap, streams)
        self.grace = grace
        self.phase = PREPARING
        self.begun = False  # the ranks were told to start
        self._policy = policy
        self._shared = shared
        self.order = order
        self._cause = first_cause.FirstCause(policy)
        self._stacks: StackRounds | None = None  # once those of the ranks may be wanted
        self._paused = False
        self._timers = events.JobTimers()
        self._handlers: dict[type, Callable[[Any], list[Any]]] = {
            events.Began: lambda event: self._timers.set(events.PREPARE, event.seconds),
            events.Prepared: self._prepared,
            events.Serves: self._serves,
            events.PortOpened: self._port_opened,
            events.Started: self._started,
            events.Exited: self._exited,
            events.StreamEnded: self._stream_ended,
            events.LinkEnded: self._link_ended,
            events.AgentEnding: lambda event: self._fail(first_cause.agent_ending(event)),
            **dict.fromkeys(events.ABOUT_STACKS, self._look),
            events.Traced: lambda event: self._look(event) if self._stacks else [],
            events.Interrupted: self._interrupted,
            events.Signalled: lambda event: self._forward(event.signum),
            events.Warned: lambda event: [events.Warn(*event)] if self.phase == RUNNING else [],
            events.Suspended: lambda event: [*self._forward(signal.SIGSTOP), events.Suspend()],
            events.Resumed: lambda event: self._forward(signal.SIGCONT, events.ResumeInput()),
            events.Unread: self._unread,
            mpi_frames.Impossible: lambda event: self._fail(event.failure),
            events.Paused: self._pause,
            events.TimerFired: self._timer_fired,
            **dict.fromkeys(mpi_frames.OF_RANK, self._mpi_event),
        }

    def on(self, event: Any) -> list[Any]:
        """Take in one event; returns the actions to be carried out, in order."""
        return self._handlers[type(event)](event)

    @property
    def failure(self) -> JobFailure | None:
        """The cause, if anything has failed."""
        return self._cause.failure

    @property
    def finished(self) -> bool:
        """Nothing is left to wait for."""
        if self.phase in (PREPARING, STARTING):
            return self.phase == PREPARING and self.failure is not None
        return self.table.services.over and (not self.begun or self.table.ranks_over)

    # --- before the ranks run

    def _prepared(self, event: events.Prepared) -> list[Any]:
        cancel = self._timers.cancel(events.PREPARE)
        if self.order:
            self.order.meeting = event.meeting
        if self.failure:
            return cancel
        if not event.services:
            return cancel + self._begin()
        self.phase = STARTING
        self.table.services.expect(event.services)
        return [*cancel, Serve(self.table.services.nodes), *self._timers.set(events.SERVE, events.SERVE_SECONDS)]

    def _serves(self, event: events.Serves) -> list[Any]:
        last = self.table.services.ready(event.service)
        return self._begin() if last and self.phase == STARTING else []

    def _begin(self) -> list[Any]:
        self.phase = RUNNING
        self.begun = True
        start = self.order.begin(self._timers) if self.order else [Start()]
        return [*self._timers.cancel(events.SERVE), *start]

    def _port_opened(self, event: events.PortOpened) -> list[Any]:
        if not self.order or self.phase != RUNNING or self._cause.overdue:
            return []
        return self.order.opened(event.rank, self._timers)

    def _started(self, event: events.Started) -> list[Any]:
        if is_service(event.rank):
            self.table.services.started(event.rank, event.node, event.pid)
            return []
        rank = self.table.ranks[event.rank]
        rank.pid, rank.began = event.pid, event.at
        if rank.world.failed:
            return [Kill(rank.rank, rank.node)]
        await_port = self.order.started(rank, self._timers) if self.order and self.phase == RUNNING else []
        return [Spawned(rank.world.number)] if rank.world.started(rank) else await_port

    # --- processes that end

    def _exited(self, event: events.Exited) -> list[Any]:
        if event.rank == NO_RANK:  # the agent could not reserve its ports
            facts = {"error": event.status.error, "todo": event.status.todo}
            failure = JobFailure(job_failure.NO_PORTS, facts, event.node)
            return self._fail(failure) if self.phase == PREPARING else []
        if is_service(event.rank):
            return self._service_exited(event)
        rank = self.table.ranks[event.rank]
        if event.status.error:
            return self._never_ran(rank, event) + self._end_services()
        rank.status = event.status
        quiet = self.phase == ENDING or self._cause.held or rank.world.failed
        if not quiet and event.status.shell_code:
            return self._rank_failed(rank, event.at - rank.began) + self._end_services()
        rank.end()
        if quiet:
            self._cause.replace_by_end(rank)
            rank.reason = "ended" if rank.killed else ""
            return self._end_services()
        return self._ended_well(rank) + self._end_services()

    def _ended_well(self, rank: RankState) -> list[Any]:
        """With recovery the others go on without a rank that did not finalize, until they wait for it."""
        if self.order and self.order.head == rank.rank:
            return self._fail(self.order.ended(rank))
        who = rank.waited_for_by()
        if who and self._policy.survives and rank.in_mpi:
            self._cause.note(first_cause.missing(rank, who))
            return []
        return self._fail(first_cause.missing(rank, who), rank.world) if who else []

    def _rank_failed(self, rank: RankState, seconds: float) -> list[Any]:
        policy = self._policy
        if policy.restarts_rank(rank) and not self._cause.overdue:
            rank.begin_again(policy.is_steady(seconds))
            return self._restart(rank, policy.rank_limit, policy.delay_before(rank.quick))
        rank.end()
        if policy.rank_limit and rank.in_mpi:
            return self._fail(first_cause.exited(rank, in_mpi=True))
        if self.order and self.order.head == rank.rank:
            return self._fail(self.order.ended(rank))
        failure = first_cause.exited(rank)
        if policy.ends_job(rank):
            return self._fail(failure)
        self._cause.note(failure)
        who = "" if rank.in_mpi else rank.waited_for_by()
        return self._fail(first_cause.missing(rank, who), rank.world) if who else []

    def _restart(self, member: RankState, limit: int, delay: float = 0.0) -> list[Any]:
        facts = {"rank": member.rank, "node": member.node, "status": member.past[-1], "delay": delay}
        notice = Notify("restart", {**facts, "number": member.restarts, "limit": limit})
        order = Restart(member.rank, member.node, member.restarts)
        if not delay:
            return [notice, order]
        return [*self._timers.delay(order, delay), notice]  # which may find that nobody reads, and end the job

    def _never_ran(self, rank: RankState, event: events.Exited) -> list[Any]:
        rank.streams = 0
        rank.end()
        if not rank.restarts:
            rank.status, rank.reason = event.status, "not started"
            return (
                self._not_spawned(rank.world, event)
                if rank.world.spawned
                else self._fail(self._cause.not_started(event))
            )
        if self.phase == ENDING:
            rank.reason = "ended"
            return []
        rank.status = event.status._replace(code=event.status.code or EXIT_USAGE)
        failed = first_cause.of_rank(job_failure.NOT_RESTARTED, rank, rank.status.shell_code, error=event.status.error)
        self._cause.note(failed)
        return []

    def _not_spawned(self, world: MpiWorld, event: events.Exited) -> list[Any]:
        """The rank that spawned the world is told, and the job goes on."""
        if world.failed:
            return []
        kills = [Kill(rank.rank, rank.node) for rank in world.fail()]
        return [*kills, Spawned(world.number, f"{event.status.error}, on {self.table.hosts[event.node]}")]

    # --- services

    def _service_exited(self, event: events.Exited) -> list[Any]:
        member, status = self.table.services.exited(event), event.status
        well = not (status.shell_code or status.error)
        if self.phase == ENDING or (self.begun and (well or self.table.ranks_ended)):
            member.reason = "" if well else "ended"  # by us, for nobody needs it any more
            return []
        if self.begun and self._policy.restarts_service(member) and not (status.error or self._cause.overdue):
            member.begin_again()
            return self._restart(member, self._policy.service_limit)  # at once: ranks do not wait long for it
        return self._fail(first_cause.service_ended(member, event, self.begun))

    def _end_services(self) -> list[Any]:
        """Services are needed until the last rank has ended, and no longer."""
        if not (self.table.services.running and self.table.ranks_ended):
            return []
        nodes = tuple(sorted(self.table.alive))
        return [Idle(nodes)] if self._shared and self.phase == RUNNING else self._end(nodes)

    # --- hosts and MPI

    def _stream_ended(self, event: events.StreamEnded) -> list[Any]:
        self.table.stream_ended(event.rank)
        return []

    def _link_ended(self, event: events.LinkEnded) -> list[Any]:
        table = self.table
        table.alive.discard(event.node)
        missed = table.services.lost(event.node)
        here = table.on(event.node)
        failure = first_cause.host_lost(event, self.begun, any(rank.pid or rank.past for rank in here))
        if not self.begun:
            return self._fail(failure)
        lost = [rank for rank in here if not rank.over]
        cut = not event.given_up and not all(rank.ended for rank in lost)
        table.leave_out(self.order.held() if self.order and lost else ())
        for rank in lost:
            rank.lose()
        if lost:
            if cut:
                self._cause.replace(failure, *here)
            return self._fail(failure) + self._end_services() + self.on(events.Traced((event.node,)))
        if missed and not table.ranks_ended:
            facts = {"numbers": missed, "error": event.error}
            return self._fail(JobFailure(job_failure.SERVICE_LOST, facts, event.node, None, EXIT_LOST))
        return self._end_services() + self.on(events.Traced((event.node,)))

    def _mpi_event(self, event: Any) -> list[Any]:
        rank = self.table.ranks[event.rank]
        failure = first_cause.mpi_failure(event, rank)
        if failure:
            return self._fail(failure, rank.world)
        if self.order and isinstance(event, mpi_frames.Joined) and self.phase == RUNNING:
            return self.order.in_mpi(rank, self._timers)
        return []

    # --- from outside, and time

    def _rounds(self) -> StackRounds:
        if self._stacks is None:
            from mslaunch.launcher.job.stack_rounds import StackRounds

            self._stacks = StackRounds(self.table, self._timers, self._cause, self._policy, self.grace)
        return self._stacks

    def _look(self, event: Any) -> list[Any]:
        """Time limits, and what else may want the stacks of the ranks."""
        actions, failure = self._rounds().on(event, self.phase == RUNNING)
        return [*actions, *(self._fail(failure) if failure else ())]

    def _interrupted(self, event: events.Interrupted) -> list[Any]:
        late = event.job and self.phase == ENDING and not self._cause.stopped
        self._cause.stopped = True
        facts: dict[str, Any] = {"signal": event.signal, "again": self.phase == ENDING and not late}
        if event.job:
            facts["job"] = event.job
        if late:  # agents and ranks got the same signal, and were heard of first; it asks for nothing more
            self._cause.replace_by_system(JobFailure(job_failure.INTERRUPTED, facts))
            return []
        notice = [Notify("interrupted", facts)] if self.phase in (RUNNING, ENDING) else []
        if self.phase == ENDING:
            ends = self._end(self._audience, now=True)
        else:
            ends = self._fail(JobFailure(job_failure.INTERRUPTED, facts))
        return [*notice, *ends, *self._timers.set(events.DRAIN_INTERRUPTED, self.grace + events.STUCK)]

    def _forward(self, signum: int, *then: Any) -> list[Any]:
        order = self.order if self.phase == RUNNING else None
        clock = order.signalled(signum, self.table.ranks, self._timers) if order else []
        return [events.Forward(int(signum)), *clock, *then] if self.begun else []

    def _unread(self, event: events.Unread) -> list[Any]:
        if self.table.ranks_ended:
            return []
        self._cause.stopped = True
        # a program that writes into a broken pipe is ended by SIGPIPE; a job, like this
        return self._fail(JobFailure(job_failure.UNREAD, {}))

    def _pause(self, event: events.Paused) -> list[Any]:
        self._paused = event.on
        return []

    def _timer_fired(self, event: events.TimerFired) -> list[Any]:
        timer = event.timer
        restart = self._timers.fired(timer)
        if restart:
            return restart
        if timer == events.PREPARE:
            return [] if self.failure else [events.GiveUpPreparing()]
        if timer == events.SERVE:
            awaited = tuple(self.table.services.awaited)
            return [*self._begin(), Notify("not ready", {"services": awaited, "seconds": events.SERVE_SECONDS})]
        if timer == events.READY:
            late = self.order and self.order.head >= 0 and self.order.late(self.table.ranks[self.order.head])
            return self._fail(late) if late else []
        if timer == events.TRACES:
            return self._look(event)
        if timer in (events.KILL, events.KILL_NOW):
            # no process withstands SIGKILL for long but one that hangs in the kernel: its host is given up
            if self._paused:  # all may have ended, but for the ends of their streams
                return self._timers.set(timer, events.NOT_ENDING)
            return [events.GiveUp(tuple(self.table.unfinished(self.begun)))]
        return [events.DropOutput(), *self._timers.set(timer, events.STUCK)]

    # --- the end

    @property
    def _audience(self) -> tuple[int, ...]:
        """The nodes where something was started, and may have to be ended."""
        alive = self.table.alive
        return tuple(sorted(alive if self.begun else alive.intersection(self.table.services.nodes)))

    def _fail(self, failure: JobFailure, world: MpiWorld | None = None) -> list[Any]:
        """The first failure to come here ends the job; of a `world` that could not be spawned none does."""
        if world and world.failed:
            return []
        if self.phase == PREPARING:
            self._cause.note(failure)
            return []
        if self.phase == ENDING:
            return []
        before = self._rounds().before_end(failure) if self._policy.stacks and self.phase == RUNNING else None
        if before is not None:
            return before
        self.phase = ENDING
        self._cause.settle(failure)
        if self.order and self.begun:
            self.table.leave_out(self.order.held())
        timers = [action for timer in (events.SERVE, events.READY) for action in self._timers.cancel(timer)]
        return timers + self._end(self._audience)

    def _end(self, nodes: tuple[int, ...], now: bool = False) -> list[Any]:
        limit = self._timers.set(
            events.KILL_NOW if now else events.KILL, events.NOT_ENDING + (0.0 if now else self.grace)
        )
        return [End(nodes, now), *self._timers.flush(nodes), *limit]

    @property
    def recovered(self) -> bool:
        """Ranks failed, the others went on, and at least one of them ended well: what recovery is asked for."""
        well = any(rank.succeeded for rank in self.table.ranks.values())
        return self._policy.survives and self.phase == RUNNING and not self._cause.overdue and well

    @property
    def code(self) -> int:
        """The exit code of the job, as far as ranks and agents decide it."""
        return 0 if self.failure is None or self.recovered else self.failure.code

    @property
    def restartable(self) -> bool:
        """With --restart group: another attempt may end otherwise."""
        return self._cause.restartable(self.begun)
