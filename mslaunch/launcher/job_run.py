"""The job of one attempt while its ranks run: its state and controller, and the records for observers."""

from __future__ import annotations

import os

from mslaunch.datamodel.jobmap import Allocation, JobMap
from mslaunch.datamodel.node_plan import NodePlan
from mslaunch.datamodel.request import Request
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.cpus import cores_here
from mslaunch.host.files import read_text
from mslaunch.host.own_names import is_local
from mslaunch.launcher.agents.connection import JobAgents
from mslaunch.launcher.agents.rendezvous import rendezvous_request
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.events import Exited, Started
from mslaunch.launcher.job.job_state import ENDING, JobState
from mslaunch.launcher.job.restart_policy import RestartPolicy, most_restarts
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.observers import AllStarted, OutputCounted, RankEnded, RankStarted
from mslaunch.plan.hosts.allocation import allocate
from mslaunch.plan.node_plans import make_plans, service_plans
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.datamodel.outcome import Failure
    from mslaunch.datamodel.request import AppContext
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.launch_context import LaunchContext
    from mslaunch.launcher.mpi.mpi_frames import RunningJob
    from mslaunch.launcher.mpi.spawn_ranks import Call, Spawner
    from mslaunch.launcher.stdio.output import Output


class JobRun:
    """The job of one attempt; `call` connects more agents, for MPI_Comm_spawn."""

    def __init__(
        self,
        context: LaunchContext,
        request: Request,
        attempt: int,
        allocation: Allocation,
        jobmap: JobMap,
        agents: Sequence[AgentConnection],
        output: Output,
        call: Call,
    ) -> None:
        self._context = context
        self._request = request
        self._attempt = attempt
        self._allocation = allocation
        self._jobmap = jobmap
        self._agents = agents
        self._output = output
        self._call = call
        self.state = self._make_state()
        self._controller: JobController
        self._printed = {STDOUT: 0, STDERR: 0}  # bytes, if there are observers
        self._all_started = False

    def run(self, stdin_ranks: Sequence[int]) -> None:
        """From the first port to the last byte; `stdin_ranks` get standard input."""
        context, request, observers = self._context, self._request, self._context.observers
        self._controller = JobController(
            context.loop,
            JobAgents(self._agents),
            self.state,
            self._output,
            JobPlans(self._make_plans, self._make_service_plans, rendezvous_request(self._jobmap, request.cluster)),
            (context.caller.stdin, stdin_ranks),
            context.console,
            make_spawner=self._make_spawner,
            write=self._count if observers else None,
            observe=self._observe if observers else None,
        )
        self._output.on_progress(self._controller.on_drained)
        context.interrupts.attach(self._controller.post)
        try:
            self._controller.run()
            self._controller.finish()
        finally:
            context.interrupts.detach()
        observers.emit(OutputCounted, self._printed[STDOUT], self._printed[STDERR])

    def _make_state(self) -> JobState:
        request = self._request
        streams, restarts = 1 if request.output.merge else 2, most_restarts(request) or request.max_restarts
        share = request.cluster.share
        shared = share is not None and share.master and share.size > len(self._jobmap.placements)
        abort, recovery, delay = request.abort_on_failure, request.recovery, request.restart_delay
        policy = RestartPolicy(abort, recovery, restarts, request.restart, delay)
        return JobState(self._jobmap, policy, streams, request.grace, shared)

    @property
    def failure(self) -> Failure | None:
        """The cause of its failure in words."""
        table, cause = self.state.table, self.state.failure
        if cause is None:
            return None
        from mslaunch.launcher.messages.failure_text import failure_of

        return failure_of(cause, table.names, table.hosts)

    def _make_plans(self, endpoint: Endpoint) -> list[NodePlan]:
        caller, jobid = self._context.caller, self._context.jobid
        return make_plans(
            self._request, self._jobmap, caller.environ, caller.cwd, endpoint, jobid, attempt=self._attempt
        )

    def _make_service_plans(self, endpoint: Endpoint) -> dict[int, NodePlan]:
        caller, jobid = self._context.caller, self._context.jobid
        return service_plans(self._request, self._jobmap, caller.environ, caller.cwd, endpoint, jobid, self._attempt)

    def _make_spawner(self, endpoint: Endpoint, job: RunningJob) -> Spawner:
        """For MPI_Comm_spawn, which few jobs call."""
        from mslaunch.launcher.mpi.spawn_ranks import SpawnContext, Spawner

        caller, jobid, named = self._context.caller, self._context.jobid, self._hosts_of_spawned
        context = SpawnContext(
            self._request, self._allocation, self._jobmap, caller.environ, caller.cwd, jobid, endpoint, named,
            self._call, self._attempt,
        )  # fmt: skip
        return Spawner(context, job)

    def _hosts_of_spawned(self, apps: tuple[AppContext, ...]) -> Allocation:
        policy = self._request.policy._replace(rankfile=None, map_by="")
        return allocation_of(self._request._replace(apps=apps, policy=policy))

    # --- observers

    def _count(self, kind: int, rank: int, data: bytes) -> None:
        self._printed[kind] += len(data)
        self._output.write(kind, rank, data)

    def _observe(self, event: Any) -> None:
        """The records that follow from an event, after the job has acted on it."""
        table, emit = self.state.table, self._context.observers.emit
        if isinstance(event, Started):
            emit(RankStarted, table.names.name(event.rank), table.hosts[event.node], event.pid)
            if not self._all_started and table.all_started and self.state.phase != ENDING:
                self._all_started = True
                emit(AllStarted, self._attempt)
        elif isinstance(event, Exited) and not event.status.error:
            status = event.status
            emit(RankEnded, table.names.name(event.rank), table.hosts[event.node], status.code, status.signal)


def allocation_of(request: Request, hwthreads: bool = False) -> Allocation:
    """The hosts that a request names, as far as this host knows their slots."""
    return allocate(request, read_text, is_local, os.uname().nodename, cores_here(hwthreads))
