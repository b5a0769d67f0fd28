"""The transport `srun`: one srun(1) starts the agents of all nodes of a Slurm job, and they call back.

What srun carries from tasks is held until the end of a line, and mixed where several tasks write; input is broadcast
byte for byte.  So it carries the program and the token there, and the agents open connections of their own
(`call_back`), as the daemons of Open MPI and hydra do.  An agent that gets no connection says so on its output, and is
started once more by an srun of its own, whose pipes are the link (`--unbuffered`).

Options, and variables that srun must not inherit: prrte plm_slurm_module.c, hydra slurm_launch.c, srun(1).  Slurm ends
the step with the job; SIGTERM to srun kills its tasks at once, so srun is not signalled while agents end by themselves.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError, LinkError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.call_proof import CALL, LONGEST, TOKEN
from mslaunch.transport.bootstrap.command_lines import boot_argv, calling_argv
from mslaunch.transport.call_back import CallLink, CallListener, call_terms
from mslaunch.transport.launcher_addresses import LauncherAddresses
from mslaunch.transport.spawned_command import SpawnedCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.runtime.loop import Loop
    from mslaunch.transport.base import OpenContext
    from mslaunch.transport.call_back import AgentCall

#: SLURM_* variables that sbatch, salloc or an outer srun has set, and that are options of the next srun
_OPTIONS = (
    "NTASKS NPROCS TASKS_PER_NODE NTASKS_PER_NODE CPUS_PER_TASK TRES_PER_TASK DISTRIBUTION CPU_BIND MEM_BIND "
    "EXPORT_ENV MPI_TYPE LABELIO UNBUFFEREDIO STDINMODE STDOUTMODE STDERRMODE NTASKS_PER_CORE NTASKS_PER_SOCKET "
    "NTASKS_PER_GPU NNODES JOB_NUM_NODES NODELIST JOB_NODELIST HINT THREADS_PER_CORE GPUS_PER_NODE GPUS_PER_TASK "
    "GPU_BIND PROLOG EPILOG TASK_PROLOG TASK_EPILOG WAIT KILL_BAD_EXIT MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE "
    "EXACT EXCLUSIVE MULTI_PROG REMOTE_CWD RELATIVE SPREAD_JOB TIMELIMIT GPUS GPUS_PER_SOCKET CPUS_PER_GPU "
    "NTASKS_PER_TRES BCAST NCORES_PER_SOCKET NSOCKETS_PER_NODE CORE_SPEC THREAD_SPEC TEST_EXEC DEBUG OPEN_MODE "
    "OVERCOMMIT DEPENDENCY SIGNAL"
)
#: the same of srun's own, and what tells of the launcher's host
_ELSEWHERE = ("SRUN_CPUS_PER_TASK", "SRUN_INPUT", "SRUN_OUTPUT", "SRUN_ERROR", "SRUN_EXPORT_ENV", "SSH_CONNECTION",
              "SSH_CLIENT", "SSH_TTY", "HOSTNAME")  # fmt: skip
_LOOK_AGAIN = 0.1  # seconds
_PATIENCE = 5.0  # seconds that srun may take to end after its tasks
#: what srun says of a job that has ended, or that there never was (slurm_errno.c, allocate.c); seen with Slurm 22.05
_ENDED = ("has expired", "Invalid job id specified", "already completing or completed", "Job allocation revoked")
_NEW_JOB = "ask for another one with salloc or sbatch, or add --resource-manager none and name hosts"
_PLAIN = ("--chdir=/", "--overlap", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0", "--wait=0",
          "--export=ALL", "--mem=0")  # fmt: skip


def srun_argv(job: str, group: int, nodes: Sequence[str]) -> list[str]:
    """One task on each of these nodes, of a component of a heterogeneous job unless that is -1."""
    count = len(nodes)
    where = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}"]
    component = [f"--het-group={group}"] if group >= 0 else []
    return ["srun", f"--jobid={job}", *component, *where, *_PLAIN]


def srun_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what would be options of srun, and what agents would take for theirs (SSH_CONNECTION)."""
    left_out = {f"SLURM_{word}" for word in _OPTIONS.split(" ")} | set(_ELSEWHERE)
    kept = {name: value for name, value in environ.items() if name not in left_out}
    return {**kept, "SLURM_EXTERNAL_LAUNCHER": "1"}


class Step:
    """One srun, and what is known of it; `open` are the links whose agents may still be there."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], given: bytes, loop: Loop) -> None:
        """Start it with `given` as its standard input.  Raises LaunchError if that fails."""
        self.open: set[CallLink] = set()
        self._lost = False  # an agent may be there that nobody can reach; srun waits for it
        try:
            self._srun = SpawnedCommand(argv, environ, given, loop)
        except OSError as error:
            what = f"{argv[0]} cannot be run: {error.strerror}"
            todo = "put Slurm's commands in PATH, or add --resource-manager none and name hosts, which SSH then reaches"
            raise LaunchError(what, todo=todo, code=127) from None
        self.output = self._srun.output

    @property
    def status(self) -> int | None:
        """The exit status of srun, if it has ended."""
        return self._srun.status

    def noise(self) -> bytes:
        """The last 4 KiB of its standard error."""
        return self._srun.noise()

    def leave(self, link: CallLink, killed: bool) -> None:
        """The agent of a link has ended, or is to be `killed`.  With the last one srun ends."""
        self.open.discard(link)
        self._lost = self._lost or killed
        if not self.open:
            self.end(0.0 if self._lost else _PATIENCE)

    def end(self, seconds: float) -> None:
        """Wait so long for its end, and then kill it; Slurm kills its tasks then."""
        if not self._srun.ended_within(seconds):
            self._srun.kill()
        self._srun.close()


class _SrunStart:
    """One srun, until all of its agents have called or nobody waits for them any more."""

    def __init__(self, nodes: Sequence[Node], group: int, context: OpenContext) -> None:
        self._context = context
        self._where = context.environ.get("SLURM_JOB_ID", ""), group
        self._environ = srun_environ(context.environ)
        self._waiting = {node.name: node for node in nodes}
        self._output_open = False
        self._said = b""  # on standard output, since the last end of a line
        policy = context.policy
        token = os.urandom(TOKEN)
        argv, program = calling_argv(policy.python, policy.timeout)
        self._listener = CallListener(context.loop, lambda name: token, self._admit)
        known = LauncherAddresses().for_hosts(self._waiting)
        terms = call_terms(self._listener.port, token, "SLURMD_NODENAME", "SLURM_LAUNCH_NODE_IPADDR", known)
        context.closers.append(self._stop)
        argv = [*srun_argv(*self._where, list(self._waiting)), *argv]
        self._step = Step(argv, self._environ, program + terms, context.loop)
        context.loop.reader(self._step.output, self._read)
        self._output_open = True
        self._limit = self._look = context.loop.after(policy.timeout, self._too_late)
        self._listener.prepare()

    def _admit(self, name: str, call: AgentCall) -> bool:
        node = self._waiting.pop(name, None)
        if node:
            self._context.opened(CallLink(node, call, self._step))
            self._stop_if_done()
        return node is not None

    def _read(self) -> None:
        data = os.read(self._step.output, 4096)
        *lines, self._said = (self._said + data).split(b"\n")
        self._said = self._said[-LONGEST:]  # a host may print without end
        for line in lines:
            word, _, rest = line.decode("ascii", "replace").partition(" ")
            if word == CALL:
                self._start_alone(*rest.partition(" ")[::2])
        if not data:  # srun ends, or no task has an output any more, since all have a connection
            self._context.loop.reader(self._step.output, None)
            self._look_for_end()

    def _start_alone(self, name: str, why: str) -> None:
        """The agent of a node has no way back: its link is a process."""
        node = self._waiting.pop(name, None)
        if node:
            self._context.notice(f"{name}: its agent cannot call back ({why}), so it gets an srun of its own")
            from mslaunch.transport.rsh_program import ProcessLink

            boot = boot_argv(self._context.policy.python, self._context.policy.timeout)
            argv = [*srun_argv(*self._where, [name]), "--unbuffered", *boot]
            self._context.opened(ProcessLink(node, argv, self._context.loop, self._environ))
            self._stop_if_done()

    def _look_for_end(self, status: int | None = None) -> None:
        """Whether srun has ended before all have called; `status`: it had, one look ago, and a call may have waited."""
        if status is None:
            self._look = self._context.loop.after(_LOOK_AGAIN, lambda: self._look_for_end(self._step.status))
            return
        said = self._step.noise()
        how = f"srun ended with status {status}" if status else "its agent ended at once"
        self._fail(lambda name: _reason(name, said) or how)

    def _too_late(self) -> None:
        said, seconds = self._step.noise(), self._context.policy.timeout
        self._fail(lambda name: _reason(name, said) or f"no agent has called back within {counted(seconds, 'second')}")

    def _fail(self, reason: Callable[[str], str]) -> None:
        waiting, self._waiting = self._waiting, {}
        for name, node in waiting.items():
            said = reason(name)
            self._context.failed(node, LinkError(said, name, _NEW_JOB if any(map(said.count, _ENDED)) else ""))
        self._stop()

    def _stop_if_done(self) -> None:
        if not self._waiting:
            self._stop()

    def _stop(self) -> None:
        """Wait for no agent any more.  Those that have not called would find nobody."""
        self._listener.close()
        if self._output_open:
            self._output_open = False
            self._limit.cancel()
            self._look.cancel()
            self._context.loop.reader(self._step.output, None)
            os.close(self._step.output)
            if not self._step.open:
                self._step.end(0.0)


def _reason(name: str, said: bytes) -> str:
    """What srun said of a node, and why its program did not run; else what it said last."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").split("\n") if line.strip()]
    errors = [line for line in lines if "error: " in line]
    about = [line for line in errors if f" {name}: " in line]
    # Slurm 22.05 names the node there; one that does not says it for all
    program = [
        line for line in errors if "execve()" in line and line.startswith(("slurmstepd: ", f"slurmstepd-{name}: "))
    ]
    chosen = (about or errors or lines)[-1:] + (program[-1:] if about else [])
    return "; ".join(dict.fromkeys(chosen))


def open_by_srun(nodes: Sequence[Node], context: OpenContext) -> None:
    """One srun for all nodes, or for each component of a heterogeneous job; see `base.Opener`."""
    from mslaunch.resource_managers.slurm import components

    for component in components(context.environ):
        here = [node for node in nodes if node.name in set(component.nodes)]
        if here:
            _SrunStart(here, component.group, context)
            nodes = [node for node in nodes if node not in here]
