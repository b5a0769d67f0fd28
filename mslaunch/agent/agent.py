"""The agent: carries out the launcher's frames, and reports what happens as frames, until the link ends.

If the link or the guard is lost, the agent ends everything that it has started.
"""

from __future__ import annotations

import os
import select

from mslaunch.agent import on_demand
from mslaunch.agent.guard import adopt_orphans, end_leftovers
from mslaunch.agent.launcher_link import AgentContext, LauncherLink
from mslaunch.agent.node_job import NodeJob
from mslaunch.agent.ports import Ports
from mslaunch.errors import exhausted, limit_of, reason
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.usable_cpus import usable_cpus
from mslaunch.protocol import control, frames
from mslaunch.protocol.frames import NO_RANK, Frame
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.agent.stack_traces import Tracer
    from mslaunch.protocol.sealed_records import Seals

    Fds = tuple[int, int]


def serve(link: Fds, guard: Fds, environ: Mapping[str, str], path: str, seals: Seals | None = None) -> None:
    """Serve the link, its reader and its writer, until it ends; HELLO has been sent.

    `guard`: see `guard.guarded`.  `environ` is what ranks inherit; `path`: of the session directory; `seals`: of the
    link, if it has some.
    """
    with Loop() as loop:
        agent = Agent(loop, link, guard, environ, path, seals)
        for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGTSTP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTTOU"):
            loop.signal(getattr(signal, name), None)
        loop.signal(signal.SIGTERM, agent.terminate)
        try:
            loop.run(lambda: agent.done)
        except Exception as error:
            agent.fault(error)
            raise
        finally:
            agent.close()


_ADOPTS = 0.05  # seconds after a launch in which the guard alone adopts orphans: short jobs do not pay for it


class _GuardPipes:
    """The agent's ends of the pipes to its guard; see `guard.guarded`."""

    def __init__(self, loop: Loop, fds: tuple[int, int], lost: Callable[[], None]) -> None:
        self._loop = loop
        self._reader, self.writer = fds
        self._lost = lost
        self._ready = self.gone = self._adopts = False
        os.set_blocking(self._reader, False)
        loop.reader(self._reader, self._read)

    def _read(self) -> None:
        try:
            ready = os.read(self._reader, 1)
        except BlockingIOError:  # `wait` read it within the same round of the loop
            return
        if ready:
            self._ready = True
        elif not self.gone:
            self.gone = True
            self._loop.reader(self._reader, None)
            self.adopt()
            self._lost()

    def adopt(self) -> None:
        """Let this process, too, be the parent of orphans to come, so that either may be killed.

        It is a job that lasts: what is freed from now on goes back to the system.
        """
        if not self._adopts:
            from mslaunch.runtime.reused_memory import reuse_freed_memory

            self._adopts = True
            if give_back := reuse_freed_memory():
                give_back(self._loop)
            if adopt_orphans():
                self._loop.reap_adopted()

    def wait(self) -> None:
        """Wait until the guard adopts orphans, or is lost."""
        for _ in range(10):
            if self._ready or self.gone:
                return
            if not select.select([self._reader], [], [], 1.0)[0]:
                self.wake()
            self._read()
        self._lost()

    def wake(self) -> None:
        """Continue a guard that was stopped; it is our parent for as long as it has not gone."""
        self._read()
        if not self.gone:
            try:
                os.kill(os.getppid(), signal.SIGCONT)
            except OSError:  # it ends just now, and our parent is another's process
                pass

    def tell_lease(self, heartbeat: float, lease: float) -> None:
        """If this process is stopped, the guard kills it after the launcher has given it up; lease 0: never."""
        try:
            os.write(self.writer, b"=%g\0" % (lease and lease + 2 * heartbeat))
        except OSError:  # the guard has gone, which the other pipe tells
            pass


class Agent:
    """One agent: its link, guard, ports and files, and the job of its node."""

    def __init__(
        self, loop: Loop, link: Fds, guard: Fds, environ: Mapping[str, str], path: str, seals: Seals | None = None
    ) -> None:
        self._loop = loop
        self._environ = environ
        self._path = path
        self._guard = _GuardPipes(loop, guard, self.upstream_lost)
        self._lost = self._adopting = self._terminated = False
        self._deferred: list[Frame] = []
        self._files: SessionDir | None = None
        self._tracer: Tracer | None = None
        self._link = LauncherLink(loop, link, self._received, self.upstream_lost, self._watch, seals)
        self._modules = on_demand.ModuleRequests(lambda name: self._link.send(frames.NEED, NO_RANK, name.encode()))
        need = self._modules.need
        context = AgentContext(loop, self._link, environ, self._session, need)
        self._ports = ports = Ports(context)
        self._job = job = NodeJob(context, self._launched)
        self._handlers: dict[int, Callable[[Frame], None]] = {
            frames.LAUNCH: self._launch,
            frames.STDIN: lambda frame: job.feed(frame.rank, frame.payload),
            frames.SIGNAL: lambda frame: job.signal(*_signal_of(frame)),
            frames.END: self._end,
            frames.RESERVE: lambda frame: ports.reserve(frame.payload),
            frames.PROBE: lambda frame: ports.probe(frame.payload),
            frames.RESTART: lambda frame: job.restart(frame.rank, control.unpack_number(frame.payload)),
            frames.TRACE: lambda frame: need("agent.stack_traces", lambda: self._trace(float(frame.payload))),
            frames.FILE: lambda frame: self._session().begin(*control.unpack_record(control.FileHead, frame.payload)),
            frames.DATA: lambda frame: self._session().write(frame.payload),
            frames.DESCRIBE: self._describe,
            frames.CLEANUP: _on_demand("agent.leftovers", context),
            frames.ROOM: _on_demand("agent.ranks.room", context),
            frames.HELD: _on_demand("agent.ranks.device_holders", context),
            frames.USE: _on_demand("agent.ranks.usage", context),
            frames.KEYS: _on_demand("agent.services.http_store", context),
            frames.AWAIT: _on_demand("agent.services.rank_port", context),
            frames.CHECK: _on_demand("agent.checks.answer_checks", context),
            frames.LEASE: lambda frame: self._guard.tell_lease(*map(float, frame.payload.split())),
            **dict.fromkeys((frames.RELEASE, frames.ANSWER, frames.QUESTION), job.mpi.on_frame),
            frames.PART: self._part,
        }

    @property
    def done(self) -> bool:
        """The launcher is gone, or this agent is to end, and nothing is left to end."""
        return self._job.over and (self._lost or (self._terminated and not self._link.pending))

    def fault(self, error: Exception) -> None:
        """An error of our own: kill the ranks, and send the traceback; for want of memory a sentence that says so."""
        self._job.signal(signal.SIGKILL)
        if isinstance(error, MemoryError):
            text = "the agent has no more memory"
        elif isinstance(error, (OSError, ImportError)) and limit_of(exhausted(error).errno):
            text = f"its agent could not go on: {reason(exhausted(error))}; raise the limit there"
        else:
            import traceback

            text = traceback.format_exc()
        self._link.fault(text)

    # --- frames of the launcher

    def _received(self, frame: Frame) -> None:
        if self._job.waiting and frame.kind in (frames.STDIN, frames.SIGNAL):
            self._deferred.append(frame)
        else:
            self._handlers[frame.kind](frame)

    def _watch(self, on: bool) -> None:
        self._job.watch(on)

    def _launched(self) -> None:
        """The ranks of a plan have been started: handle the frames that had to wait for them."""
        if not self._job.waiting:
            deferred, self._deferred = self._deferred, []
            for frame in deferred:
                self._received(frame)

    def _describe(self, frame: Frame) -> None:
        from mslaunch.host.read_topology import read_topology

        self._link.send(frames.TOPOLOGY, NO_RANK, control.pack_topology(read_topology(usable_cpus())))

    def _launch(self, frame: Frame) -> None:
        plan = control.unpack_plan(frame.payload)
        self._ports.stop_proving()
        self._guard.wait()
        if not self._lost:
            self._job.launch(plan, self._ports.held)
            self._loop.after(_ADOPTS, self._guard.adopt)

    def _session(self) -> SessionDir:
        """Made when it is first needed, by files or by ranks."""
        from mslaunch.agent.ranks.session_dir import SessionDir

        self._files = self._files or SessionDir(self._path, self._guard.writer, self._stored)
        return self._files

    def _stored(self, error: str, todo: str) -> None:
        self._link.send(frames.STORED, NO_RANK, control.pack_record(control.Stored(error, todo)))

    def _part(self, frame: Frame) -> None:
        from mslaunch.protocol.mpi import unpack_part

        self._modules.came(unpack_part(frame.payload))

    def _trace(self, seconds: float) -> None:
        """Look at the stacks of all ranks for so many seconds at most."""
        pids = {} if self._job.termination.begun else self._job.pids()
        self._stop_tracing()  # the launcher waits no longer for a round that came before
        traces = on_demand.get("agent.stack_traces")
        self._tracer = traces.Tracer(self._loop, pids, self._environ, self._traced, self._job.program_folders())
        self._tracer.begin(seconds)

    def _traced(self, rank: int, traced: control.StackTrace | None) -> None:
        self._link.send(frames.TRACES, rank, control.pack_traced(traced) if traced else b"")

    # --- the end

    def _end(self, frame: Frame) -> None:
        """The payload is the grace in seconds, "0" for SIGKILL at once, or "idle": end services once they are idle."""
        if frame.payload == b"idle":
            self._job.end_idle_services()
        else:
            self._stop_tracing()
            self._job.termination.end(float(frame.payload))

    def _stop_tracing(self) -> None:
        if self._tracer:
            self._tracer.stop()  # first: a process that a debugger has stopped takes no signal

    def close(self) -> None:
        """Nothing runs any more.

        While there is a guard, orphans are ended by descent alone: ranks of the next attempt, which may run here
        already, have our mark as well.
        """
        self._guard.wake()
        if self._guard.gone or self._adopting:
            end_leftovers(self._job.marks if self._guard.gone else ())
        self._job.mpi.close()
        if self._files:
            self._files.close()

    def terminate(self) -> None:
        """SIGTERM: end our part in order, and tell the launcher why."""
        if self._terminated and not self._lost:
            return
        if self._job.pids() and not self._lost:
            self._terminated = True
            self._link.send(frames.ENDING)
            self._stop_tracing()
            self._job.termination.abandon()
        else:
            self.upstream_lost()

    def upstream_lost(self) -> None:
        """The launcher or the guard is gone: end what we hold."""
        if not self._lost:
            self._lost = True
            if self._job.pids():  # a batch system that ends the job kills the guard at any time
                self._adopting = True
                self._guard.adopt()
            self._link.close()
            self._ports.close()
            self._stop_tracing()
            self._job.termination.abandon()


def _signal_of(frame: Frame) -> tuple[int, int | None, bool]:
    """What SIGNAL says: the signal, one rank or all, and whether it goes the way of SIGTERM."""
    number, as_term, _ = frame.payload.partition(b" term")
    return int(number), None if frame.rank == NO_RANK else frame.rank, bool(as_term)


def _on_demand(name: str, context: AgentContext) -> Callable[[Frame], None]:
    """For frames that the `handle` of a part takes, a module that travels on demand."""
    return lambda frame: context.need(name, lambda: on_demand.get(name).handle(context, frame))
