"""One attempt of a launch: place the ranks, open the output, connect the agents, run the job, and the outcome.

Each attempt has its own agents and output; attempts share a `LaunchContext`.  `launch` calls the steps of the first,
`group_restart` those of the later ones; whoever made an attempt closes it.  The job id is the same in all attempts;
ranks tell them apart by MSLAUNCH_ATTEMPT.
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.jobmap import Allocation, JobMap
from mslaunch.datamodel.node_plan import SERVICE_BASE
from mslaunch.datamodel.outcome import Failure, Outcome
from mslaunch.datamodel.request import Request
from mslaunch.errors import EXIT_TIMEOUT, UnreachedError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, load, partial
from mslaunch.host.own_addresses import addresses, is_local
from mslaunch.host.system_files import head_of
from mslaunch.host.usable_cpus import cores_here
from mslaunch.launcher.agents.rendezvous import RendezvousRequest
from mslaunch.launcher.agents.start_agents import AgentPool
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.events import PREPARE_SECONDS
from mslaunch.launcher.job.job_actions import JobAgents
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job.restart_policy import check_fewest, check_shared, most_restarts, policy_of
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.observers import AttemptEnded, AttemptStarted, Connected, Connecting, Staged, Staging
from mslaunch.launcher.stdio.output import AttemptInfo, Output, open_output
from mslaunch.launcher.stdio.terminal import FLUSH_SECONDS
from mslaunch.plan.mapping.pipeline import Placed, allocate, place
from mslaunch.plan.node_plans import first_services, has_services, make_plans, service_plans, stdin_ranks, xterm_ranks
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.datamodel.request import AppContext, Caller
    from mslaunch.host.files import Wait
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.agents.staging import StagedFile
    from mslaunch.launcher.agents.start_agents import OpenLinks
    from mslaunch.launcher.interrupts import Interrupts
    from mslaunch.launcher.job.job_records import JobWatcher
    from mslaunch.launcher.mpi.mpi_frames import RunningJob
    from mslaunch.launcher.mpi.spawn_ranks import Spawner
    from mslaunch.launcher.observers import Observers
    from mslaunch.launcher.peers.job_peers import JobPeers
    from mslaunch.launcher.stdio.terminal import Console, OutputFd
    from mslaunch.plan.mapping.pipeline import Ask
    from mslaunch.plan.program_steps import ProgramStep
    from mslaunch.resource_managers.managers import Grant
    from mslaunch.runtime.loop import Loop

_SCRIPT = 1 << 16  #: bytes of a program that are searched for the name of a framework


class LaunchContext(NamedTuple):
    """What all attempts of a launch share."""

    loop: Loop
    caller: Caller
    console: Console
    stdout: OutputFd  # `console.stderr` if both are one device
    interrupts: Interrupts
    links: OpenLinks
    observers: Observers
    began: float
    jobid: str
    secret: str  # of its MPI worlds, see `make_world`
    grant: Grant | None = None  # of a resource manager; None: the command line names the hosts
    peers: JobPeers | None = None  # commands on other hosts that have met with this one

    @property
    def seconds(self) -> float:
        """Time since the launch began."""
        return time.monotonic() - self.began


class JobAttempt:
    """One attempt; `number` counts from 1."""

    allocation: Allocation
    placed: Placed
    output: Output
    state: JobState  #: once its ranks run

    def __init__(self, context: LaunchContext, request: Request, number: int) -> None:
        self._context = context
        self._caller = context.caller
        self._grant = context.grant
        self.request = self._under_grant(request)
        self.number = number
        self.pool = AgentPool(
            context.loop,
            self.request.link,
            self._caller.environ,
            context.console,
            context.interrupts.wait,
            request.do_not_launch,
            request.restart == "group",
            partial(context.observers.emit, Connecting),
            links=context.links,
        )
        self.agents: list[AgentConnection] = []
        self._files: list[StagedFile] = []
        self._opened = False  # the output is open

    # --- hosts and places

    def _under_grant(self, request: Request) -> Request:
        """What a resource manager says of how agents are started, and of what ranks inherit there, added to it."""
        if not self._grant:
            return request
        link = request.link._replace(granted=self._grant.transport)
        return request._replace(link=link, scrub=self._grant.scrub, shared=self._grant.shared)

    def named_hosts(self) -> Allocation:
        """The hosts that the request names, of those granted if some were; no agent is asked for slots."""
        return allocation_of(self.request, self._hwthreads, self._context.interrupts.wait_for_input, self._grant)

    def count_cores(self, allocation: Allocation, gone: Collection[str] = ()) -> Allocation:
        """`allocation` with all slots known: a host without slots= has as many as cores, which its agent knows.

        Binding to hardware threads counts these instead; mapping by them does not (mpirun 4.1.4).  Nodes whose names
        are in `gone` are not asked.
        """
        asked = [node for node in allocation.nodes if node.slots is None and node.name not in gone]
        return allocation.with_cores(self.pool.cores(asked, self._hwthreads)) if asked else allocation

    @property
    def _hwthreads(self) -> bool:
        policy = self.request.policy
        return policy.hwthread_cpus or policy.bind_to == "hwthread"

    def place(self, request: Request, allocation: Allocation, ask: Ask | None = None) -> JobMap:
        """Map the ranks; from now on `request` and `allocation` are those of the attempt.  `ask`: for topologies."""
        self.request, self.allocation = self._under_grant(request), allocation
        self.placed = place(
            request,
            allocation,
            ask or self.pool.topologies,
            is_this_host,
            os.uname().nodename,
            partial(head_of, size=_SCRIPT),
            self._caller.cwd,
        )
        ranks, first = len(self.jobmap.placements), self.jobmap.first
        self._stdin_ranks = stdin_ranks(request, ranks, first)
        xterm_ranks(request, ranks, first)
        if self.number == 1 and (request.output.fold or request.output.shown):
            from mslaunch.launcher.stdio.output_checks import check_output

            check_output(request, ranks)
        check_fewest(request, ranks)
        check_shared(request)
        self._steps: Sequence[ProgramStep] = ()
        if any(app.ready for app in request.apps):
            self._steps = load("plan.program_steps:checked_steps")(request, self.jobmap)
        return self.jobmap

    @property
    def jobmap(self) -> JobMap:
        """Where the ranks are."""
        return self.placed.jobmap

    # --- before the ranks run

    def collect_files(self) -> None:
        """Find the files that are to be sent, before any host is connected."""
        if any(app.preload_binary or app.preload_files for app in self.request.apps):
            self._files = load("launcher.agents.staging:collect")(self.request, self._caller.environ, self._caller.cwd)

    def open_output(self) -> None:
        """Open terminals and files; those whose names have addresses in them only after `connect`."""
        context, request, policy = self._context, self.request, self.request.output
        services = first_services(request, self.jobmap) or (SERVICE_BASE,) * has_services(request)
        self.output = open_output(
            policy,
            self.jobmap,
            context.loop,
            {STDOUT: context.stdout, STDERR: context.console.stderr},
            context.console.info,
            self._addresses() if policy.needs_addresses and self.agents else None,
            AttemptInfo(self.number, 0 < self.number <= most_restarts(request), services, request.timeout),
        )
        self._opened = True

    def _addresses(self) -> Callable[[int], str]:
        from mslaunch.launcher.stdio.file_patterns import addresses_of

        share = self.request.cluster.share
        return addresses_of([(agent.node, agent.hello) for agent in self.agents], share.address if share else "")

    def connect(self) -> None:
        """Connect an agent on every host with ranks, and send the files."""
        self.agents, wait = self.pool.require(self.jobmap.nodes), self._context.interrupts.wait
        if self.request.health_check:
            load("launcher.agents.health_check:require_healthy")(self.request, self.agents, wait)
        observers = self._context.observers
        hosts = tuple(node.name for node in self.jobmap.nodes)
        observers.emit(Connected, hosts, tuple(agent.hello for agent in self.agents))
        if self._files:
            from mslaunch.launcher.agents.staging import send_files

            try:
                send_files(self._context.loop, self.agents, self._files, wait, partial(observers.emit, Staging))
            except UnreachedError:  # an agent that has got a part of them cannot be used again
                self.pool.disconnect_all()
                raise
            observers.emit(Staged, len(self._files))

    # --- the ranks

    def run_ranks(self) -> None:
        """From the first port to the last byte."""
        context, caller, request, jobmap = self._context, self._caller, self.request, self.jobmap
        share = request.cluster.share
        streams = 1 if request.output.merge else 2
        shared = share is not None and share.master and share.size > len(jobmap.placements)
        order = None
        if self._steps:
            from mslaunch.launcher.job.program_starts import ProgramStarts

            order = ProgramStarts(self._steps, request.ready_timeout)
        self.state = JobState(jobmap, policy_of(request), streams, request.grace, shared, order)
        records = self._records()
        agents = JobAgents(self.agents, context.interrupts.suspend)
        controller = JobController(
            context.loop,
            agents,
            self.state,
            self.output,
            self._plans(),
            (caller.stdin, self._stdin_ranks),
            context.console,
            make_spawner=self._make_spawner,
            records=records,
        )
        context.observers.emit(AttemptStarted, self.number, len(jobmap.placements), self.placed)
        self.output.on_progress(controller.on_drained)
        context.interrupts.attach(controller.post, controller)
        if context.peers:
            context.peers.attach(controller.post, self.state)
        try:
            controller.run()
            if context.peers:
                context.peers.settle(context.loop, context.console.info)
            controller.finish()
        finally:
            context.interrupts.detach()
            if context.peers:
                context.peers.detach()
        if records:
            records.end()
            context.observers.emit(AttemptEnded, self.number, self._failure())

    def _records(self) -> JobWatcher | None:
        """For observers and --hang-timeout, if there are any."""
        context, request = self._context, self.request
        if not (context.observers or request.hang.seconds):
            return None
        from mslaunch.launcher.monitoring.watched_job import WatchedJob

        job = WatchedJob(self.state, self.number, self.output.write, self._failure)
        return job.watcher(context.observers, request, context.loop, context.interrupts.post, self._caller.cwd)

    def _plans(self) -> JobPlans:
        """What is made once ports and addresses are known."""
        context, caller, jobmap, cluster = self._context, self._caller, self.jobmap, self.request.cluster
        made_of = self.request, jobmap, caller.environ, caller.cwd
        names: dict[str, Any] = {"jobid": context.jobid, "attempt": self.number, "secret": context.secret}
        beside = cluster.share is not None and cluster.share.size > len(jobmap.placements)  # ranks of other launchers
        rendezvous = RendezvousRequest(jobmap.placements[0].node, jobmap.service_node, cluster, beside)
        if self.request.env_for:
            from mslaunch.plan.rank_addresses import ports_wanted

            rendezvous = rendezvous._replace(rank_ports=ports_wanted(self.request, jobmap))
        plans, first = (
            partial(make_plans, *made_of, **names, unbound=self.placed.unbound),
            partial(service_plans, *made_of, **names),
        )
        counts = [len(rows) for rows in jobmap.by_node()]
        patience = max(PREPARE_SECONDS, self.request.link.timeout)
        scopes: Mapping[str, Sequence[int]] = {}
        if self.request.horovod:
            from mslaunch.frameworks.table import store_scopes

            scopes = store_scopes([node.name for node in jobmap.nodes], [row.node for row in jobmap.placements])
        devices = None
        if self.request.devices.asked:
            from mslaunch.plan.device_shares import DeviceShares

            devices = DeviceShares(self.request.devices)
            plans = partial(plans, devices=devices)
        return JobPlans(plans, first, rendezvous, counts, patience, devices, scopes, self._steps)

    def _make_spawner(self, endpoint: Endpoint, job: RunningJob) -> Spawner:
        """For MPI_Comm_spawn, which few jobs call."""
        from mslaunch.launcher.mpi.spawn_ranks import SpawnContext, Spawner

        caller, jobid, request, grant = self._caller, self._context.jobid, self.request, self._grant

        def named(apps: tuple[AppContext, ...]) -> Allocation:
            policy = request.policy._replace(rankfile=None, map_by="")
            return allocation_of(request._replace(apps=apps, policy=policy), granted=grant)

        context = SpawnContext(
            request, self.allocation, self.jobmap, caller.environ, caller.cwd, jobid, endpoint, named, self.pool.call,
            self.number, self._context.secret,
        )  # fmt: skip
        return Spawner(context, job)

    # --- the end

    def _failure(self) -> Failure | None:
        """The cause of its failure in words."""
        table, cause = self.state.table, self.state.failure
        if cause is None:
            return None
        from mslaunch.launcher.messages.failure_text import failure_of

        return failure_of(cause, table.names, table.hosts)

    def outcome(self) -> Outcome:
        """How it ended; its files are still open."""
        state, table, failure = self.state, self.state.table, self._failure()
        ranks = tuple(map(self.output.with_logs, table.statuses()))
        services = tuple(map(self.output.with_logs, table.service_statuses()))
        restarts: tuple[str, ...] = ()
        restarted = table.restarted()
        if failure or restarted:
            from mslaunch.launcher.messages.closing_report import restarts_text, with_last_words

            failure = with_last_words(failure, self.output.tail) if failure else None
            if failure and failure.code == EXIT_TIMEOUT and self.output.tracebacks:
                from mslaunch.launcher.late_tracebacks import with_tracebacks

                failure = with_tracebacks(failure, self.request, self.jobmap, table, self.output, self._context.began)
            restarts = tuple(
                restarts_text(table.names.name(member.rank), table.hosts[member.node], member.past, member.run_count)
                for member in restarted
            )
        return Outcome(state.code, ranks, failure, self._context.seconds, services=services, restarts=restarts)

    def close_agents(self) -> list[str]:
        """Close all agents, and end what lost ones have left; returns the hosts whose agents would not end."""
        context, stuck = self._context, self.pool.close()
        if any(connection.lost for connection in context.links.made):
            from mslaunch.launcher.agents.cleanup import clean_up_lost

            stuck += clean_up_lost(context.loop, self.pool, context.links.made, context.jobid, context.console.verbose)
        context.links.made.clear()
        return stuck

    def close_output(self) -> bool:
        """Close its files; True if all that was printed is in them.  May be called twice."""
        opened, self._opened = self._opened, False
        return self.output.close() if opened else True

    def end_output(self) -> bool:
        """The same after the last attempt."""
        if self._opened:
            self.output.end()
            self._context.loop.run(lambda: not self.output.pending, FLUSH_SECONDS)
        return self.close_output()


def allocation_of(
    request: Request, hwthreads: bool = False, wait: Wait | None = None, granted: Grant | None = None
) -> Allocation:
    """The hosts that a request names, as far as this host knows their slots; `wait` is that of `read_text`."""

    def read(path: str) -> str:
        text: str = load("host.files:read_text")(path, wait)
        return text

    job = (granted.allocation, granted.title) if granted else ()
    return allocate(request, read, is_this_host, os.uname().nodename, cores_here(hwthreads), *job)


def is_this_host(name: str) -> bool:
    """`is_local`, or a name that begins with this host's, has a domain, and has no other address than ours.

    A launcher's pod is in its own hostfile as `pod.service.namespace.svc`, where no sshd runs, perhaps before the name
    service knows that; it is asked about no other names, and for two seconds.
    """
    if is_local(name) or not name.startswith(os.uname().nodename.partition(".")[0] + "."):
        return is_local(name)
    from mslaunch.launcher.own_names import addresses_of

    found = addresses_of(name, 2.0)
    return not found or not found.isdisjoint(addresses())
