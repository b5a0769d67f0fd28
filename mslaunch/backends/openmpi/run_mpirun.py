"""One launch by an installed Open MPI: a job of one process on this host, mpirun.

Standard input, signals, --timeout, services and the end of all processes are therefore handled as in any launch.  The
state of that job contains mpirun only; `mpirun_outcome` finds out how the ranks ended.
"""

from __future__ import annotations

import os

from mslaunch.backends.openmpi.demux import Demux
from mslaunch.backends.openmpi.find_mpirun import find
from mslaunch.backends.openmpi.local_streams import LocalStreams
from mslaunch.backends.openmpi.mpirun_job import MpirunJob, make_job
from mslaunch.backends.openmpi.mpirun_outcome import outcome_of
from mslaunch.backends.openmpi.rank_wrapper import LocalPaths
from mslaunch.backends.openmpi.translate_options import HOSTFILE, refuse
from mslaunch.datamodel.jobmap import Allocation, JobMap, Node, Placement
from mslaunch.datamodel.outcome import Outcome
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.processes import children, stat_fields
from mslaunch.host.programs import is_python
from mslaunch.launcher.agents.rendezvous import RendezvousRequest
from mslaunch.launcher.agents.start_agents import AgentPool
from mslaunch.launcher.attempt import allocation_of
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.events import Resumed, Signalled, Suspended
from mslaunch.launcher.job.job_actions import JobAgents
from mslaunch.launcher.job.job_state import ENDING, JobState
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.launch import announce_pid, make_context, report_missing_exports, with_lost_output
from mslaunch.launcher.messages.closing_report import outcome_text
from mslaunch.launcher.messages.failure_text import failure_of
from mslaunch.launcher.stdio.output import Output, open_output
from mslaunch.plan.node_plans import stdin_ranks
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.datamodel.request import Caller, Request
    from mslaunch.launcher.attempt import LaunchContext

_SSH_ENDS = 3.0  #: seconds that the ssh to other hosts may take to end once mpirun has
_LOOK_AGAIN = 0.02  # seconds; no event tells of processes that are not ours
_USUAL_PORTS = (29500, 8118)  #: the defaults of frameworks, for a dry run


def run(request: Request, caller: Caller) -> Outcome:
    """Launch with Open MPI, and wait for the end.  Raises `LaunchError` for what is wrong before mpirun runs."""
    refuse(request)
    with Loop() as loop:
        context = make_context(loop, request._replace(verbose=False), caller)  # its details would be about mpirun
        try:
            mpirun = find(request.backend.partition(":")[2], caller.environ.get("PATH", os.defpath))
            allocation = allocation_of(request, wait=context.interrupts.wait_for_input)
            job = make_job(request, allocation, mpirun, caller.environ, caller.cwd, context.jobid)
            stdin_ranks(request, job.size)
            if request.do_not_launch:
                _show(job, caller.stdout)
                return Outcome(0, (), None, context.seconds)
            return _MpirunLaunch(context, job).run()
        finally:
            context.console.close()


class _MpirunLaunch:
    """mpirun from its start to the report."""

    _output: Output
    _local: LocalStreams
    _paths: LocalPaths

    def __init__(self, context: LaunchContext, job: MpirunJob) -> None:
        self._context = context
        self._console = context.console
        self._loop = context.loop
        self._job = job
        self._request = job.request
        self._here = Node(os.uname().nodename, 1, "this host", local=True)
        self._hello = f"mslaunch-{os.urandom(8).hex()}"

    def run(self) -> Outcome:
        """Raises `LaunchError` for what is wrong before mpirun runs."""
        report_missing_exports(self._context, self._request)
        announce_pid(self._context, self._request)
        # for names of files all ranks count as those of this host
        jobmap = JobMap((self._here,), tuple(Placement(rank, 0, 0, rank) for rank in range(self._job.size)), 1)
        terminals = {STDOUT: self._context.stdout, STDERR: self._console.stderr}
        self._output = open_output(self._request.output, jobmap, self._loop, terminals, self._console.info)
        try:
            return self._run_mpirun()
        finally:
            self._output.close()

    def _run_mpirun(self) -> Outcome:
        job, context, loop, output = self._job, self._context, self._loop, self._output
        caller = context.caller
        demux = Demux(output, job.size, self._hello, job.mpirun.style if self._tagged else "")
        self._local = local = LocalStreams(loop, demux.on_hello, self._local_output)
        pool = AgentPool(loop, self._request.link, caller.environ, self._console, context.interrupts.wait, False)
        try:
            agents = pool.require([self._here])  # before there are descriptors that its agent would inherit
            self._paths = self._open_streams()
            state = JobState(JobMap((self._here,), (Placement(0, 0, 0, 0),), 1), grace=job.grace)
            rendezvous = RendezvousRequest(0, 0, elsewhere=job.elsewhere)
            plans, stdin = JobPlans(self._plan, rendezvous=rendezvous), (caller.stdin, job.readers)
            self._conduct(
                JobController(loop, JobAgents(agents), state, output, plans, stdin, self._console, write=demux.write)
            )
            table = state.table
            failure = failure_of(state.failure, table.names, table.hosts) if state.failure else None
            signum = table.ranks[0].status.signal
            if job.elsewhere and agents[0].hello and not signum:
                self._wait_for_ssh(agents[0].hello.pid)
        finally:
            local.close()
            stuck = pool.close()
        outcome = outcome_of(failure, signum, demux, output, job.size, context.seconds)
        outcome = outcome if output.close() else with_lost_output(outcome)
        self._console.write(outcome_text(outcome._replace(ranks=()), output.log_of(outcome.failure)), "error")
        self._console.finish(stuck)
        return outcome

    def _open_streams(self) -> LocalPaths:
        job, output = self._job, self._request.output
        if not job.here:
            return LocalPaths(self._hello)
        python = all(is_python(app.argv[0]) for app in self._request.apps)
        pty = output.pty == "yes" or (output.pty == "auto" and not python)
        stdin = (self._context.caller.stdin, int(self._request.stdin)) if job.feeds else None
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
        ports = endpoint.port, endpoint.service_port
        meet = job.endpoint(_address(job.allocation), ports, endpoint.own_ports)
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
        self._context.interrupts.attach(receive)
        try:
            controller.run()
            if state.phase == ENDING:
                local.hurry()
            local.mpirun_ended()
            self._loop.run(lambda: local.over)
            controller.finish()
        finally:
            self._context.interrupts.detach()

    def _wait_for_ssh(self, agent: int) -> None:
        """mpirun has left its ssh to end by themselves, and our guard would kill them.

        A daemon of Open MPI that loses its ssh while it ends its ranks may die of that, and leave them behind.
        """

        def look_again() -> None:
            self._loop.after(_LOOK_AGAIN, look_again)

        look_again()
        fields = stat_fields(agent)
        guard = int(fields[1]) if fields else 0  # it has adopted them; where the kernel does not tell, there are none
        self._loop.run(lambda: not set(children(guard)) - {agent}, _SSH_ENDS)


def _show(job: MpirunJob, fd: int) -> None:
    """A dry run: the command line, in a form that a shell takes."""
    import shlex

    line = job.command_line(job.endpoint(_address(job.allocation), _USUAL_PORTS), LocalPaths(), False, HOSTFILE)
    text = f"# {job.mpirun.name}, {job.mpirun.path}; a launch chooses free ports, and reads the output of each rank\n"
    text += "".join(f"# {HOSTFILE}: {host}\n" for host in job.options.hostfile.splitlines())
    words = [*map(_assignment, job.options.env), shlex.join(line)]
    os.write(fd, f"{text}{' '.join(words)}\n".encode("utf-8", "surrogateescape"))


def _assignment(word: str) -> str:
    """NAME=value before a command, as a shell takes it."""
    import shlex

    name, _, value = word.partition("=")
    return f"{name}={shlex.quote(value)}"


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
