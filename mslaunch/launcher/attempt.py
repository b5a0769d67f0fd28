"""One attempt of a launch: place the ranks, open the output, connect the agents, run, and the outcome.

Each attempt has its own agents and output; attempts share a `LaunchContext`.  `launch` calls the steps of the first,
`recovery` those of the later ones; whoever made an attempt closes it.  The job id is the same in all attempts; ranks
tell them apart by MSLAUNCH_ATTEMPT.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.hosts import Allocation
from mslaunch.datamodel.jobmap import JobMap
from mslaunch.datamodel.node_plan import SERVICE, NodePlan
from mslaunch.datamodel.outcome import Failure, Outcome, RankStatus
from mslaunch.datamodel.request import Request
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.cpus import cores_here
from mslaunch.host.own_names import is_local
from mslaunch.host.programs import head
from mslaunch.launcher.agents.agent_pool import AgentPool
from mslaunch.launcher.agents.job_agents import JobAgents
from mslaunch.launcher.agents.rendezvous import sought_by
from mslaunch.launcher.agents.start_agents import UnreachedError
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.failure_causes import with_last_words
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job.restart_policy import check_fewest, most_restarts
from mslaunch.launcher.stdio.file_patterns import needs_addresses
from mslaunch.launcher.stdio.output import AttemptInfo, Output, open_output
from mslaunch.plan.hosts.allocation import allocate, with_cores
from mslaunch.plan.mapping.pipeline import Placed, place
from mslaunch.plan.node_plans import first_services, has_services, make_plans, service_plans
from mslaunch.plan.rank_selection import stdin_ranks, xterm_ranks
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.datamodel.request import AppContext
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.agents.staging import StagedFile
    from mslaunch.launcher.launch_context import LaunchContext
    from mslaunch.launcher.mpi.spawn_ranks import Spawner

LAST_WORDS = 3.0  #: seconds that a terminal nobody reads is waited for at the end


_SCRIPT = 1 << 16  # bytes of a program that are searched for the name of a framework


class JobAttempt:
    """One attempt; `number` counts from 1."""

    allocation: Allocation
    placed: Placed
    output: Output
    launch: JobController

    def __init__(self, context: LaunchContext, request: Request, number: int) -> None:
        self._context = context
        self.request = request
        self.number = number
        loop, caller, console = context.loop, context.caller, context.console
        dry, exchanges = request.do_not_launch, request.restart == "group"
        self.company = AgentPool(loop, request.link, caller.environ, console, context.interrupts.wait, dry, exchanges)
        self.peers: list[AgentConnection] = []
        self._parcels: list[StagedFile] = []
        self._opened = False

    # --- where

    def allocate(self) -> Allocation:
        """Hosts without slots= have as many as they have cores, which only they know: these are asked first.

        Binding to hardware threads counts these instead; mapping by them does not (mpirun 4.1.4).
        """
        return self.count_cores(self.named())

    def named(self) -> Allocation:
        """As hosts are written, nobody asked yet."""
        return _allocate(self.request, self._hwthreads)

    def count_cores(self, allocation: Allocation, gone: Collection[str] = ()) -> Allocation:
        """The same with all slots known, but those of nodes (by name) that are `gone`."""
        asked = [node for node in allocation.nodes if node.slots is None and node.name not in gone]
        return with_cores(allocation, self.company.cores(asked, self._hwthreads)) if asked else allocation

    @property
    def _hwthreads(self) -> bool:
        policy = self.request.policy
        return policy.hwthread_cpus or policy.bind_to == "hwthread"

    def place(self, request: Request, allocation: Allocation) -> JobMap:
        """Every rank gets its place; from now on these are the request and the allocation."""
        self.request, self.allocation = request, allocation
        self.placed = place(
            request,
            allocation,
            self.company.topologies,
            is_local,
            os.uname().nodename,
            lambda path: head(path, _SCRIPT),
            self._context.caller.cwd,
        )
        self.targets = stdin_ranks(request, len(self.jobmap.placements), self.jobmap.first)
        xterm_ranks(request, len(self.jobmap.placements), self.jobmap.first)
        check_fewest(request, len(self.jobmap.placements))
        return self.jobmap

    @property
    def jobmap(self) -> JobMap:
        """Where the ranks are."""
        return self.placed.jobmap

    # --- what it needs

    def collect_files(self) -> None:
        """What is to be sent is looked for before any host is called."""
        if any(app.preload_binary or app.preload_files for app in self.request.apps):
            from mslaunch.launcher.agents.staging import collect

            self._parcels = collect(self.request, self._context.caller.environ, self._context.caller.cwd)

    def open_output(self) -> None:
        """Terminals and files; those whose names have addresses in them only after `meet`."""
        context, policy = self._context, self.request.output
        services = tuple(first_services(self.request, self.jobmap)) or (SERVICE,) * has_services(self.request)
        self.output = open_output(
            policy,
            self.jobmap,
            context.loop,
            {STDOUT: context.stdout, STDERR: context.console.stderr},
            context.console.info,
            self._addresses() if needs_addresses(policy) and self.peers else None,
            AttemptInfo(self.number, 0 < self.number <= most_restarts(self.request), services),
        )
        self._opened = True

    def _addresses(self) -> Callable[[int], str]:
        from mslaunch.launcher.stdio.host_addresses import addresses_of

        share = self.request.cluster.share
        return addresses_of([(peer.node, peer.hello) for peer in self.peers], share.address if share else "")

    def meet(self) -> None:
        """A link to every host with ranks, and the files are there."""
        self.peers = self.company.require(self.jobmap.nodes)
        if self._parcels:
            from mslaunch.launcher.agents.staging import send_files

            try:
                send_files(self._context.loop, self.peers, self._parcels, self._context.interrupts.wait)
            except UnreachedError:  # whoever has begun to get them begins anew, with another agent
                self.company.disconnect_all()
                raise

    # --- the ranks

    def run_ranks(self) -> JobController:
        """From the first port to the last byte."""
        context, request = self._context, self.request
        state = self._make_state()

        def plans(endpoint: Endpoint) -> list[NodePlan]:
            environ, cwd = context.caller.environ, context.caller.cwd
            return make_plans(request, self.jobmap, environ, cwd, endpoint, context.jobid, attempt=self.number)

        def services(endpoint: Endpoint) -> dict[int, NodePlan]:
            environ, cwd = context.caller.environ, context.caller.cwd
            return service_plans(request, self.jobmap, environ, cwd, endpoint, context.jobid, self.number)

        stdin = (context.caller.stdin, self.targets)
        launch = JobController(
            context.loop,
            JobAgents(self.peers),
            state,
            self.output,
            plans,
            stdin,
            request.grace,
            context.console,
            restart_delay=request.restart_delay,
            services=services,
            sought=sought_by(self.jobmap, request.cluster),
        )
        self.launch = launch
        launch.on_spawn(lambda endpoint: self._spawning(launch, endpoint))
        launch.on_running(context.running)
        self.output.on_progress(launch.on_drained)
        context.interrupts.attach(launch.event)
        try:
            launch.run()
            launch.finish()
        finally:
            context.interrupts.detach()
        return launch

    def _make_state(self) -> JobState:
        request = self.request
        streams, again = 1 if request.output.merge else 2, most_restarts(request) or request.max_restarts
        share = request.cluster.share
        shared = share is not None and share.master and share.size > len(self.jobmap.placements)
        abort, recovery = request.abort_on_failure, request.recovery
        return JobState(self.jobmap, streams, abort, recovery, again, request.restart, shared)

    def _spawning(self, launch: JobController, endpoint: Endpoint) -> Spawner:
        """Who cares for MPI_Comm_spawn; only jobs that call it need this."""
        from mslaunch.launcher.mpi.spawn_ranks import SpawnContext, Spawner

        def named(apps: tuple[AppContext, ...]) -> Allocation:
            policy = request.policy._replace(rankfile=None, map_by="")
            return _allocate(request._replace(apps=apps, policy=policy))

        context, request = self._context, self.request
        environ, cwd, call = context.caller.environ, context.caller.cwd, self.company.call
        return Spawner(
            SpawnContext(
                request, self.allocation, self.jobmap, environ, cwd, context.jobid, endpoint, named, call, self.number
            ),
            launch,
        )

    # --- the end

    def outcome(self) -> Outcome:
        """How it ended; its files are still open."""
        state, output = self.launch.state, self.output
        failure = with_last_words(state.failure, output.tail) if state.failure else None
        ranks, services = (
            tuple(_with_logs(status, output) for status in statuses)
            for statuses in (state.statuses(), state.service_statuses())
        )
        return Outcome(
            state.code, ranks, failure, self._context.seconds, services=services, restarts=tuple(state.restarts)
        )

    def log_of(self, failure: Failure | None) -> str | None:
        """The file that tells more about it."""
        return self.output.log_path(failure.rank) if failure and failure.rank is not None else None

    def close_output(self) -> bool:
        """Close its files; True if all that was printed is in them.  May be called twice."""
        opened, self._opened = self._opened, False
        return self.output.close() if opened else True

    def end_output(self) -> bool:
        """The same after the last attempt."""
        if self._opened:
            self.output.end()
            self._context.loop.run(lambda: not self.output.pending, LAST_WORDS)
        return self.close_output()

    def close(self) -> list[str]:
        """Close all links; the hosts whose agents would not end."""
        return self.company.close()


def _with_logs(status: RankStatus, output: Output) -> RankStatus:
    if not output.logs:
        return status
    return status._replace(stdout=output.logs.path(STDOUT, status.rank), stderr=output.logs.path(STDERR, status.rank))


def _allocate(request: Request, hwthreads: bool = False) -> Allocation:
    """The hosts that a request names, as far as this host knows their slots."""
    return allocate(request, _read_text, is_local, os.uname().nodename, cores_here(hwthreads))


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
