"""One launch by an installed Open MPI: mpirun is the only process of a job on this host, and its ranks are outside it.

So standard input, signals, --timeout, services and that nothing outlives the launcher are those of any
launch.  The state of that job knows mpirun alone; how the ranks ended is in `mpirun_outcome`.
"""

from __future__ import annotations

import os
import time

from mslaunch.backends.openmpi.demux import Demux
from mslaunch.backends.openmpi.find_mpirun import find
from mslaunch.backends.openmpi.local_streams import LocalStreams
from mslaunch.backends.openmpi.mpirun_job import MpirunJob, make_job
from mslaunch.backends.openmpi.mpirun_outcome import MpirunEnd, outcome_of
from mslaunch.backends.openmpi.rank_wrapper import LocalPaths
from mslaunch.backends.openmpi.translate_options import HOSTFILE, refuse
from mslaunch.datamodel.jobmap import Allocation, JobMap, Node, Placement
from mslaunch.datamodel.outcome import Outcome
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.processes import children, stat_fields
from mslaunch.host.programs import is_python
from mslaunch.launcher.agents.connection import JobAgents
from mslaunch.launcher.agents.start_agents import AgentPool
from mslaunch.launcher.attempt import allocation_of
from mslaunch.launcher.interrupts import Interrupts
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.events import Resumed, Signalled, Suspended
from mslaunch.launcher.job.job_state import ENDING, JobState
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.messages.closing_report import outcome_text
from mslaunch.launcher.messages.failure_text import failure_of
from mslaunch.launcher.stdio.output import Output, open_output
from mslaunch.launcher.stdio.terminal import Console
from mslaunch.plan.exported_variables import missing_exports
from mslaunch.plan.rank_selection import stdin_ranks
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.datamodel.request import Caller, Request

_SSH_ENDS = 3.0  #: seconds that the ssh to other hosts may take to end once mpirun has
_LOOK_AGAIN = 0.02  # seconds; no event tells of processes that are not ours
_USUAL_PORTS = (29500, 8118)  #: the defaults of frameworks, for a dry run


def run(request: Request, caller: Caller) -> Outcome:
    """Launch with Open MPI, and wait for the end.  Raises `LaunchError` for what is wrong before mpirun runs."""
    refuse(request)
    began = time.monotonic()
    with Loop() as loop:
        interrupts = Interrupts(loop, request, caller.signals)
        mpirun = find(request.backend.partition(":")[2], caller.environ.get("PATH", os.defpath))
        allocation = allocation_of(request)
        job = make_job(request, allocation, mpirun, caller.environ, caller.cwd, os.urandom(4).hex())
        stdin_ranks(request, job.size)
        if request.do_not_launch:
            _show(job, caller.stdout)
            return Outcome(0, (), None, time.monotonic() - began)
        return _MpirunLaunch(loop, interrupts, job, caller, began).run()


class _MpirunLaunch:
    """mpirun from its start to the report."""

    def __init__(self, loop: Loop, interrupts: Interrupts, job: MpirunJob, caller: Caller, began: float) -> None:
        self._began = began
        self._loop = loop
        self._interrupts = interrupts
        self._job = job
        self._request = job.request
        self._caller = caller
        self._console = Console(loop, caller.stderr, job.request.quiet, False)  # its details are about mpirun
        self._stdout = self._console.open_stdout(caller.stdout)
        self._here = Node(os.uname().nodename, 1, "this host", local=True)
        self._hello = f"mslaunch-{os.urandom(8).hex()}"

    def run(self) -> Outcome:
        """Raises `LaunchError` for what is wrong before mpirun runs."""
        try:
            for name in missing_exports(self._request, self._caller.environ):
                self._console.info(f"-x {name}: the variable is not set here, so the ranks do not get it")
            self._announce()
            self._output = self._open_output()
            try:
                return self._run_mpirun()
            except LaunchError:
                self._output.close()
                raise
        except LaunchError:
            self._console.close()
            raise

    def _announce(self) -> None:
        request, caller = self._request, self._caller
        if request.report_pid is not None or request.report_uri is not None:
            from mslaunch.launcher.report_pid import announce

            say, wait = self._console.print, self._interrupts.wait
            announce(request, caller.cwd, caller.stdout, say, self._job.jobid, self._loop, wait)

    def _open_output(self) -> Output:
        """For names of files all ranks count as those of this host."""
        jobmap = JobMap((self._here,), tuple(Placement(rank, 0, 0, rank) for rank in range(self._job.size)), 1)
        terminals = {STDOUT: self._stdout, STDERR: self._console.stderr}
        return open_output(self._request.output, jobmap, self._loop, terminals, self._console.info)

    def _run_mpirun(self) -> Outcome:
        job, loop, caller, output = self._job, self._loop, self._caller, self._output
        demux = Demux(output, job.size, self._hello)
        pool = AgentPool(loop, self._request.link, caller.environ, self._console, self._interrupts.wait, False)
        local = LocalStreams(loop, demux.on_hello, self._local_output)
        self._local = local
        try:
            peers = pool.require([self._here])  # before there are descriptors that its agent would inherit
            self._paths = self._open_streams()
            if self._tagged:
                demux.expect_tags(job.mpirun.style == "5.0")
            state = JobState(JobMap((self._here,), (Placement(0, 0, 0, 0),), 1), grace=job.grace)
            agents, plans, stdin = JobAgents(peers), JobPlans(self._plan), (caller.stdin, job.readers)
            controller = JobController(loop, agents, state, output, plans, stdin, self._console, write=demux.write)
            self._conduct(controller)
            table = state.table
            failure = failure_of(state.failure, table.names, table.hosts) if state.failure else None
            end = MpirunEnd(failure, table.ranks[0].status.signal)
            if job.elsewhere and peers[0].hello and not end.signal:
                self._wait_for_ssh(peers[0].hello.pid)
        finally:
            local.close()
            stuck = pool.close()
        outcome = outcome_of(end, demux, output, job.size, time.monotonic() - self._began)
        self._report(outcome, stuck)
        return outcome

    def _open_streams(self) -> LocalPaths:
        job, output = self._job, self._request.output
        if not job.here:
            return LocalPaths(self._hello)
        python = all(is_python(app.argv[0]) for app in self._request.apps)
        pty = output.pty == "yes" or (output.pty == "auto" and not python)
        stdin = (self._caller.stdin, int(self._request.stdin)) if job.feeds else None
        paths = self._local.open(job.size, pty, self._hello, stdin)
        if stdin and paths.reader is None:
            self._console.info("no rank gets standard input: there are not enough descriptors, or there is no /proc")
        return paths

    @property
    def _tagged(self) -> bool:
        """Whether mpirun tags what ranks elsewhere print: if it matters which rank it was."""
        return self._job.elsewhere and self._output.sorts

    def _plan(self, endpoint: Endpoint) -> list[NodePlan]:
        """The plan of this host, once ports are held."""
        job = self._job
        meet = job.endpoint(_address(job.allocation), (endpoint.port, endpoint.service_port))
        line = job.command_line(meet, self._paths, self._tagged, _in_memory(job.options.hostfile))
        return [job.plan(line, meet)]

    def _local_output(self, kind: int, rank: int, data: bytes) -> None:
        self._output.write(kind, rank, data)
        self._local.hold(self._output.pending)

    def _conduct(self, controller: JobController) -> None:
        """Until mpirun and the streams of local ranks have ended."""
        state, local = controller.state, self._local

        def drained() -> None:
            local.hold(self._output.pending)
            controller.on_drained()

        def receive(event: Any) -> None:
            if isinstance(event, Suspended):  # mpirun stops its ranks then, and not itself
                controller.post(Signalled(int(signal.SIGTSTP)))
                self._loop.soon(lambda: os.kill(os.getpid(), signal.SIGSTOP))
                return
            controller.post(event)
            if isinstance(event, Resumed):
                local.resume_input()
            elif state.phase == ENDING:
                local.hurry()

        self._output.on_progress(drained)
        self._interrupts.attach(receive)
        try:
            controller.run()
            if state.phase == ENDING:
                local.hurry()
            local.mpirun_ended()
            self._loop.run(lambda: local.over)
            controller.finish()
        finally:
            self._interrupts.detach()

    def _wait_for_ssh(self, agent: int) -> None:
        """mpirun has left its ssh to end by themselves, and our guard would kill them.

        A daemon of Open MPI that loses its ssh while it ends its ranks may die of that, and leave them behind.
        """

        def look_again() -> None:
            self._loop.after(_LOOK_AGAIN, look_again)

        look_again()
        self._loop.run(lambda: not _adopted_beside(agent), _SSH_ENDS)

    def _report(self, outcome: Outcome, stuck: list[str]) -> None:
        log = self._output.log_of(outcome.failure)
        self._console.finish(outcome_text(outcome._replace(ranks=()), log), stuck)


def _adopted_beside(agent: int) -> list[int]:
    """The processes that the guard above an agent has adopted; none where the kernel does not tell."""
    fields = stat_fields(agent)
    return [pid for pid in children(int(fields[1])) if pid != agent] if fields else []


def _show(job: MpirunJob, fd: int) -> None:
    """A dry run: the command line, in a form that a shell takes."""
    import shlex

    line = job.command_line(job.endpoint(_address(job.allocation), _USUAL_PORTS), LocalPaths(), False, HOSTFILE)
    text = f"# {job.mpirun.name}, {job.mpirun.path}; a launch chooses free ports, and reads the output of each rank\n"
    text += "".join(f"# {HOSTFILE}: {host}\n" for host in job.options.hostfile.splitlines())
    os.write(fd, f"{text}{shlex.join(line)}\n".encode("utf-8", "surrogateescape"))


def _address(allocation: Allocation) -> str:
    """The address of this host that ranks elsewhere reach: that on the way to the first of their hosts."""
    far = [node for node in allocation.nodes if not node.local]
    if not far:
        return "127.0.0.1"
    from mslaunch.host.own_addresses import addresses, source_address

    return source_address(far[0].name, resolve=True) or addresses()[0]


def _in_memory(text: str) -> str:
    """The name of a file that holds `text` and is gone when we are; "" for none."""
    if not text:
        return ""
    fd = os.memfd_create("hosts")
    os.write(fd, text.encode("utf-8", "surrogateescape"))
    return f"/proc/{os.getpid()}/fd/{fd}"
