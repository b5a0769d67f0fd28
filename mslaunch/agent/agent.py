"""The agent: what the launcher orders by frames it has done, what happens it tells by frames, until the link ends.

`serve` is its whole life.  How ranks are started and ended knows its `NodeJob`.  Losing the link is the order to end
everything; so is losing its guard.  The surprising thing: it stops reading its ranks, not its link, when the launcher
does not keep up, so that an order to end them always arrives.
"""

from __future__ import annotations

import os
import select
import sys

from mslaunch.agent import on_demand
from mslaunch.agent.mpi.front_end import MpiFrontEnd
from mslaunch.agent.node_job import NodeJob
from mslaunch.agent.ports import Ports
from mslaunch.datamodel.exit_status import ExitStatus
from mslaunch.datamodel.node_plan import is_service
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.cpus import count_cores, usable_cpus
from mslaunch.host.own_addresses import addresses
from mslaunch.protocol import control, frames
from mslaunch.protocol.frames import NO_RANK, Frame
from mslaunch.runtime.loop import Loop
from mslaunch.runtime.writer import HIGH, LOW, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.agent.stack_traces import Tracer
    from mslaunch.errors import LaunchError


def serve(link: tuple[int, int], guard: tuple[int, int], environ: Mapping[str, str], by_ssh: bool) -> None:
    """Serve the link, its reader and its writer, until it ends.

    See `guard.guarded` for what is said on the two of `guard`.  `environ` is what ranks inherit; `by_ssh`: its
    SSH_CONNECTION is taken for that of this link.  (Should it be another's, its address is a candidate that no token
    will prove.)
    """
    with Loop() as loop:
        agent = Agent(loop, link, guard, environ)
        for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGTSTP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTTOU"):
            loop.signal(getattr(signal, name), None)
        loop.signal(signal.SIGTERM, agent.upstream_lost)
        try:
            agent.hello(by_ssh)
            loop.run(lambda: agent.done)
        except Exception:
            agent.fault()
            raise
        finally:
            agent.close()


class Agent:
    """The link to the launcher, and who carries out what is said on it."""

    def __init__(self, loop: Loop, link: tuple[int, int], guard: tuple[int, int], environ: Mapping[str, str]) -> None:
        self._loop = loop
        self._reader = reader = link[0]
        self._guard, self._tell = guard
        self._guarded = False
        self._environ = environ
        self._parts = on_demand.ModuleRequests(lambda name: self.send(frames.NEED, NO_RANK, name.encode()))
        self._mpi = MpiFrontEnd(loop, self, environ, self._parts.need)
        self._crew = NodeJob(loop, self, environ, self._session, self._mpi, self._parts.need)
        self._decoder = frames.Decoder()
        self._outbox = Writer(loop, link[1], lambda error: self.upstream_lost(), lambda size: self._resume())
        self._ports = Ports(loop, self, self._parts.need)
        self._tracer: Tracer | None = None
        self._files: SessionDir | None = None
        self._deferred: list[Frame] = []
        self._paused = False
        self._lost = False
        self._on: dict[int, Callable[[Frame], None]] = {
            frames.LAUNCH: self._launch,
            frames.STDIN: self._stdin,
            frames.SIGNAL: self._signal,
            frames.END: self._end,
            frames.RESERVE: lambda frame: self._ports.reserve(frame.payload),
            frames.PROBE: lambda frame: self._ports.probe(frame.payload),
            frames.RESTART: self._restart,
            frames.TRACE: self._trace,
            frames.FILE: self._file,
            frames.DATA: self._data,
            frames.DESCRIBE: self._describe,
            frames.RELEASE: lambda frame: self._mpi.released(frame.payload),
            frames.ANSWER: lambda frame: self._mpi.answered(frame.payload),
            frames.QUESTION: lambda frame: self._mpi.question(frame.payload),
            frames.PART: self._part,
        }
        os.set_blocking(reader, False)
        os.set_blocking(self._guard, False)
        loop.reader(reader, self._read)
        loop.reader(self._guard, self._heard_guard)
        self._outbox.send(frames.MAGIC)  # before all else: a FAULT must be found, too

    @property
    def done(self) -> bool:
        """The launcher is gone and nothing is left to end."""
        return self._lost and self._crew.over

    # --- up

    def hello(self, by_ssh: bool) -> None:
        """The first thing that an agent says."""
        cpus = usable_cpus()
        found = addresses()
        seen_from = ""
        if by_ssh:
            connection = self._environ.get("SSH_CONNECTION", "").split()  # sshd(8): client, port, server, port
            if len(connection) == 4:
                seen_from = connection[0]
                found = list(dict.fromkeys([connection[2], *found]))
        version = ".".join(map(str, sys.version_info[:3]))
        numbers = (os.getpid(), len(cpus), count_cores(cpus))
        greeting = control.Hello(os.uname().nodename, *numbers, version, tuple(found), seen_from)
        self.send(frames.HELLO, NO_RANK, control.pack_hello(greeting))

    def fault(self) -> None:
        """Our own mistake: tell the launcher, with the traceback."""
        import traceback

        self._outbox.send(frames.encode(frames.FAULT, payload=traceback.format_exc().encode("utf-8", "replace")))
        self._outbox.flush()
        self._crew.signal(signal.SIGKILL)

    def output(self, kind: int, rank: int, data: bytes) -> None:
        """See `ranks.Sink`."""
        self._outbox.send(frames.header(kind, len(data), rank), data)
        if self._outbox.pending > HIGH and not self._paused:
            self._paused = True
            self._crew.watch(False)

    def _resume(self) -> None:
        if self._paused and self._outbox.pending < LOW:
            self._paused = False
            self._crew.watch(True)

    def send(self, kind: int, rank: int, payload: bytes) -> None:
        """See `mpi.MpiSink`."""
        self._outbox.send(frames.encode(kind, rank, payload))

    def pids(self) -> dict[int, int]:
        """See `mpi.MpiSink`."""
        return self._crew.pids()

    def folder(self, name: str) -> str:
        """See `mpi.MpiSink`."""
        return self._session().folder(name)

    def started(self, rank: int, pid: int) -> None:
        """See `services.ServiceSink`."""
        self._outbox.send(frames.encode(frames.STARTED, rank, str(pid).encode()))

    def serves(self, number: int) -> None:
        """See `services.ServiceSink`."""
        self.send(frames.SERVES, number, b"")

    def exited(self, rank: int, status: ExitStatus) -> None:
        """See `ranks.Sink`."""
        if is_service(rank):
            self._send_exit(rank, status)
            return
        self._mpi.ended(rank, status.code != 0, lambda: self._send_exit(rank, status))
        if self._lost and not self._crew.pids():
            self._crew.end_services(at_once=True)

    def not_started(self, rank: int, error: LaunchError) -> None:
        """See `services.ServiceSink`."""
        self._send_exit(rank, ExitStatus(error.code, None, error.what, error.todo))

    def _send_exit(self, rank: int, ended: ExitStatus) -> None:
        self._outbox.send(frames.encode(frames.EXIT, rank, control.pack_exit(ended)))

    def stdin_taken(self, rank: int, size: int) -> None:
        """See `ranks.Sink`."""
        if size:
            self._outbox.send(frames.encode(frames.STDIN_TAKEN, rank, str(size).encode()))

    # --- down

    def _read(self) -> None:
        try:
            data = os.read(self._reader, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.upstream_lost()
            return
        for frame in self._decoder.feed(data):
            if self._crew.waiting and frame.kind in (frames.STDIN, frames.SIGNAL):
                self._deferred.append(frame)
            else:
                self._on[frame.kind](frame)

    def launched(self) -> None:
        """See `crew.CrewSink`: what came for ranks that were not there yet."""
        if not self._crew.waiting:
            deferred, self._deferred = self._deferred, []
            for frame in deferred:
                self._on[frame.kind](frame)

    def _heard_guard(self) -> None:
        try:
            said = os.read(self._guard, 1)
        except BlockingIOError:  # `_launch` heard it within the same round of the loop
            return
        if said:
            self._guarded = True
        else:
            self._loop.reader(self._guard, None)
            self.upstream_lost()

    def _describe(self, frame: Frame) -> None:
        """What our cpus share."""
        from mslaunch.host.read_topology import read_topology

        answer = control.pack_topology(read_topology(usable_cpus()))
        self._outbox.send(frames.encode(frames.TOPOLOGY, payload=answer))

    def _launch(self, frame: Frame) -> None:
        plan = control.unpack_plan(frame.payload)
        self._ports.close_door()
        if not self._guarded:
            select.select([self._guard], [], [])  # orphans of the ranks must find somebody
            self._heard_guard()
        if not self._lost:
            self._crew.launch(plan, self._ports.held)

    def _session(self) -> SessionDir:
        """Made when it is first needed, by files or by ranks."""
        if self._files is None:
            from mslaunch.agent.ranks.session_dir import SessionDir

            self._files = SessionDir(self._environ, self._tell, self._stored)
        return self._files

    def _file(self, frame: Frame) -> None:
        self._session().begin(*control.unpack_file(frame.payload))

    def _data(self, frame: Frame) -> None:
        self._session().write(frame.payload)

    def _stored(self, error: str, todo: str) -> None:
        self._outbox.send(frames.encode(frames.STORED, payload=control.pack_stored(error, todo)))

    def _restart(self, frame: Frame) -> None:
        self._crew.restart(frame.rank, control.unpack_number(frame.payload))

    def _stdin(self, frame: Frame) -> None:
        self._crew.feed(frame.rank, frame.payload)

    def _signal(self, frame: Frame) -> None:
        self._crew.signal(int(frame.payload), None if frame.rank == NO_RANK else frame.rank)

    def _part(self, frame: Frame) -> None:
        """Modules that we have asked for."""
        from mslaunch.protocol.mpi import unpack_part

        self._parts.came(unpack_part(frame.payload))

    def _trace(self, frame: Frame) -> None:
        """Look at the stacks of all ranks, no longer than the payload says."""

        def look() -> None:
            module = on_demand.get("agent.stack_traces")
            assert module
            pids = {} if self._crew.ending else self._crew.pids()
            self._tracer = module.Tracer(self._loop, pids, self._environ, self._traced)
            self._tracer.begin(float(frame.payload))

        self._parts.need("agent.stack_traces", look)

    def _traced(self, rank: int, traced: control.StackTrace | None) -> None:
        self._outbox.send(frames.encode(frames.TRACES, rank, control.pack_traced(traced) if traced else b""))

    # --- the end

    def _end(self, frame: Frame) -> None:
        """TERM, the grace of the payload in seconds, KILL; "0": KILL at once.  "idle": services, once they are idle."""
        if frame.payload == b"idle":
            self._crew.end_idle_services()
        else:
            self._end_crew(float(frame.payload))

    def _end_crew(self, grace: float | None = None) -> None:
        if self._tracer:
            self._tracer.stop()  # first: the process that a debugger looks at hears nothing
        self._mpi.failing()
        self._crew.end(grace)

    def close(self) -> None:
        """Nothing runs any more."""
        self._mpi.close()
        if self._files:
            self._files.close()

    def upstream_lost(self) -> None:
        """The launcher or our guard is gone: end what we hold."""
        if self._lost:
            return
        self._lost = True
        self._loop.reader(self._reader, None)
        self._outbox.close()
        self._ports.close()
        if self._paused:
            self._paused = False
            self._crew.watch(True)  # what ranks print is dropped, but their ends are seen
        self._end_crew()
