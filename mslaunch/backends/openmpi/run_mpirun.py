"""A launch that an installed Open MPI does: our request in its words, its ranks with our variables, its end as ours.

mpirun runs below our own local agent, as the agent's one rank: so standard input, signals, --timeout, the scheduler of
MindSpore, and that nothing is left behind, are what they are in any launch.  What mpirun is told is made in `job`, what
stands before each program in `wrapper`, and who printed what is found out in `desk`.  The surprising thing: the state
of the launch knows one rank, mpirun, so how the true ranks ended is put together at the end.
"""

from __future__ import annotations

import os
import time

from mslaunch.backends.openmpi.command_line import HOSTFILE, refuse
from mslaunch.backends.openmpi.demux import MpirunOutput, open_desk
from mslaunch.backends.openmpi.find_mpirun import find
from mslaunch.backends.openmpi.local_streams import LocalStreams
from mslaunch.backends.openmpi.mpirun_job import MpirunJob, make_job
from mslaunch.backends.openmpi.mpirun_outcome import outcome_of
from mslaunch.backends.openmpi.rank_wrapper import Streams
from mslaunch.datamodel.hosts import Allocation, Node
from mslaunch.datamodel.jobmap import JobMap, Placement
from mslaunch.datamodel.node_plan import NodePlan
from mslaunch.datamodel.outcome import Outcome
from mslaunch.datamodel.request import Request
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.cpus import cores_here
from mslaunch.host.own_names import is_local
from mslaunch.host.processes import children, stat_fields
from mslaunch.host.programs import is_python
from mslaunch.launcher.agents.agent_pool import AgentPool
from mslaunch.launcher.interrupts import Interrupts
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.events import Resumed, Suspended
from mslaunch.launcher.job.job_state import ENDING, PREPARING, JobState
from mslaunch.launcher.messages.failure_report import outcome_text
from mslaunch.launcher.stdio.console import Console
from mslaunch.plan.exported_variables import missing_exports
from mslaunch.plan.hosts.allocation import allocate
from mslaunch.plan.rank_selection import stdin_ranks
from mslaunch.protocol import frames
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.launch_context import Caller

_LAST_WORDS = 3.0  #: seconds that a standard error nobody reads is waited for
_WAYS_END = 3.0  #: seconds that the ssh of other hosts may take to end once mpirun has
_USUAL_PORTS = (29500, 8118)  #: torch's and MindSpore's, for a dry run


class _MpirunState(JobState):
    """That of one rank, mpirun; all is over when the streams of its local ranks are, too."""

    def __init__(self, here: Node, nearby: LocalStreams) -> None:
        super().__init__(JobMap((here,), (Placement(0, 0, 0, 0),), 1))
        self._nearby = nearby
        self._told: bool | None = None  # whether it was while the job was being ended; None: not yet

    def on(self, event: Any) -> list[Any]:
        """See `JobState`."""
        actions = super().on(event)
        soon = self.phase == ENDING
        if self.ranks[0].ended and not self._told and self._told is not soon:
            self._told = soon
            self._nearby.ended(soon)
        return actions

    @property
    def finished(self) -> bool:
        """See `JobState`."""
        return super().finished and (self.phase == PREPARING or self._nearby.over)


def run(request: Request, caller: Caller) -> Outcome:
    """Launch with Open MPI, and wait for the end.  Raises `LaunchError` for what is wrong before mpirun runs."""
    with Loop() as loop:
        return _MpirunLaunch(loop, request, caller).tell()


class _MpirunLaunch:
    """One launch, and what its chapters share."""

    def __init__(self, loop: Loop, request: Request, caller: Caller) -> None:
        self._began = time.monotonic()
        self._loop = loop
        self._request = request
        self._caller = caller
        self._console = Console(
            loop, caller.stderr, request.quiet, False
        )  # its details tell of a rank 0, which is mpirun
        self._here = Node(os.uname().nodename, 1, "this host", local=True)
        self._jobid = os.urandom(4).hex()
        own = request._replace(stack_traces=False, state_on_timeout=False)
        self._interrupts = Interrupts(loop, own, caller.signals)

    def tell(self) -> Outcome:
        """From the request to the outcome."""
        request, caller = self._request, self._caller
        refuse(request)
        mpirun = find(request.backend.partition(":")[2], caller.environ.get("PATH", os.defpath))
        allocation = allocate(request, _read_text, is_local, self._here.name, cores_here(False))
        job = make_job(request, allocation, mpirun, caller.environ, caller.cwd, self._jobid)
        stdin_ranks(request, job.size)
        if request.do_not_launch:
            _show(job, caller.stdout)
            return Outcome(0, (), None, self._seconds())
        for name in missing_exports(request, caller.environ):
            self._console.info(f"-x {name}: there is no such variable here; the ranks get none either")
        try:
            self._announce()
            return self._launch(job)
        except LaunchError:
            self._console.close()
            raise

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _announce(self) -> None:
        request = self._request
        if request.report_pid is not None or request.report_uri is not None:
            from mslaunch.launcher.messages.report_pid import announce, open_channel

            def open_file(path: str) -> int:
                return open_channel(path, self._loop, self._interrupts.wait)

            announce(request, self._caller.cwd, self._caller.stdout, self._console.print, self._jobid, open_file)

    def _launch(self, job: MpirunJob) -> Outcome:
        console = self._console
        hello = f"mslaunch-{os.urandom(8).hex()}"
        desk = open_desk(self._request.output, job.size, hello, self._loop, self._caller.stdout, console)
        company = AgentPool(self._loop, self._request.link, self._caller.environ, console, self._interrupts.wait, False)
        nearby = desk.nearby = LocalStreams(self._loop, desk.introduced, desk.near)
        state = _MpirunState(self._here, nearby)
        try:
            peers = company.require([self._here])  # before there are descriptors that its agent would inherit
            streams = self._open(nearby, job, hello)
            self._conduct(peers, state, desk, self._planner(job, desk, streams), job)
            if job.elsewhere and peers[0].hello and not state.ranks[0].signal:
                self._wait_for_ways(peers[0].hello.pid)
        except LaunchError:
            desk.close()
            raise
        finally:
            nearby.close()
            stuck = company.close()
        return self._report(outcome_of(state, desk, job.size, self._seconds()), desk, stuck)

    def _wait_for_ways(self, agent: int) -> None:
        """mpirun has left its ssh to end by themselves, and our guard would kill them.

        A daemon of Open MPI that loses its ssh while it ends its ranks may die of that, and leave them behind.
        """
        given_up: list[bool] = []
        self._loop.after(_WAYS_END, lambda: given_up.append(True))

        def look_again() -> None:
            self._loop.after(0.02, look_again)  # no event tells of processes that are not ours

        look_again()
        self._loop.run(lambda: bool(given_up) or not adopted_beside(agent))

    def _open(self, nearby: LocalStreams, job: MpirunJob, hello: str) -> Streams:
        if not job.here:
            return Streams(hello)
        pty = self._request.output.pty
        python = all(is_python(app.argv[0]) for app in self._request.apps)
        stdin = (self._caller.stdin, int(self._request.stdin)) if job.feeds else None
        streams = nearby.open(job.size, pty == "yes" or (pty == "auto" and not python), hello, stdin)
        if stdin and streams.reader is None:
            self._console.info("no rank gets standard input: there are not enough descriptors, or there is no /proc")
        return streams

    def _planner(self, job: MpirunJob, desk: MpirunOutput, streams: Streams) -> Callable[[Endpoint], list[NodePlan]]:
        """What makes the plan once ports are held.

        mpirun tags what ranks elsewhere print, if it matters whose it is.
        """
        tagged = job.elsewhere and desk.sorts
        if tagged:
            desk.expect_tags(job.mpirun.style == "5.0")
        hostfile = _in_memory(job.words.hostfile)

        def plan(endpoint: Endpoint) -> list[NodePlan]:
            ports = (endpoint.port, endpoint.service_port)
            meeting = job.meeting(_address(job.allocation), ports)
            return [job.plan(job.line(meeting, streams, tagged, hostfile), meeting)]

        return plan

    def _conduct(
        self,
        peers: list[AgentConnection],
        state: JobState,
        desk: MpirunOutput,
        plan: Callable[[Endpoint], list[NodePlan]],
        job: MpirunJob,
    ) -> None:
        caller = self._caller
        launch = JobController(
            self._loop, peers, state, desk, plan, (caller.stdin, job.readers), job.grace, self._console
        )
        desk.on_progress(launch.on_drained)

        def receive(event: Any) -> None:
            if isinstance(event, Suspended):
                self._stop(peers[0])
            elif isinstance(event, Resumed):
                self._continue(peers[0], desk.nearby)
            else:
                launch.event(event)

        self._interrupts.attach(receive)
        try:
            launch.run()
        finally:
            self._interrupts.detach()

    def _stop(self, peer: AgentConnection) -> None:
        """Ctrl-Z: mpirun stops its ranks when it hears SIGTSTP, and not itself; then we stop."""
        peer.send(frames.encode(frames.SIGNAL, frames.NO_RANK, str(int(signal.SIGTSTP)).encode()))
        self._loop.soon(lambda: os.kill(os.getpid(), signal.SIGSTOP))

    @staticmethod
    def _continue(peer: AgentConnection, nearby: LocalStreams) -> None:
        peer.send(frames.encode(frames.SIGNAL, frames.NO_RANK, str(int(signal.SIGCONT)).encode()))
        if nearby.feed:
            nearby.feed.resume()

    def _report(self, outcome: Outcome, desk: MpirunOutput, stuck: list[str]) -> Outcome:
        failure = outcome.failure
        log = desk.log_path(failure.rank) if failure and failure.rank is not None else None
        self._console.write(outcome_text(outcome._replace(ranks=()), log))
        if stuck:
            self._console.info(f"still ending: {', '.join(stuck)}")
        given_up: list[bool] = []
        self._loop.after(_LAST_WORDS, lambda: given_up.append(True))
        self._loop.run(lambda: not self._console.stderr.pending or bool(given_up))
        self._console.close()
        return outcome


def adopted_beside(agent: int) -> list[int]:
    """The processes that the guard above an agent has adopted; none where the kernel does not tell."""
    fields = stat_fields(agent)
    return [pid for pid in children(int(fields[1])) if pid != agent] if fields else []


def _show(job: MpirunJob, fd: int) -> None:
    """A dry run: the command line, in a form that a shell takes."""
    import shlex

    line = job.line(job.meeting(_address(job.allocation), _USUAL_PORTS), Streams(), False, HOSTFILE)
    text = f"# {job.mpirun.name}, {job.mpirun.path}; a launch chooses free ports, and reads the output of each rank\n"
    text += "".join(f"# {HOSTFILE}: {host}\n" for host in job.words.hostfile.splitlines())
    os.write(fd, f"{text}{shlex.join(line)}\n".encode("utf-8", "surrogateescape"))


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _address(allocation: Allocation) -> str:
    """Of this host: where ranks elsewhere reach it, as the way to the first of them tells."""
    far = [node for node in allocation.nodes if not node.local]
    if not far:
        return "127.0.0.1"
    from mslaunch.host.own_addresses import addresses
    from mslaunch.host.source_address import source_address

    return source_address(far[0].name, resolve=True) or addresses()[0]


def _in_memory(text: str) -> str:
    """The name of a file that holds `text` and is gone when we are; "" for none."""
    if not text:
        return ""
    fd = os.memfd_create("hosts")
    os.write(fd, text.encode("utf-8", "surrogateescape"))
    return f"/proc/{os.getpid()}/fd/{fd}"
