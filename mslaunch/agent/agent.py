"""The agent: told a plan by frames, it starts the ranks of its node, carries their output up, and ends them.

`serve` is its whole life.  It knows its own node's plan, not the allocation and no other node.  Losing the link is
the order to end everything; so is losing its guard.  The surprising thing: it stops reading its ranks, not its link,
when the launcher does not keep up, so that an order to end them always arrives.
"""

from __future__ import annotations

import os
import select
import sys

from mslaunch.agent.cpus import bound, count_cores, usable_cpus
from mslaunch.agent.fds import Room, open_fds
from mslaunch.agent.network import Door, Listener, Prober, addresses
from mslaunch.agent.program import check_wdir, command, explain_spawn, is_python
from mslaunch.agent.ranks import Rank
from mslaunch.agent.services import Service
from mslaunch.agent.variables import inherited, rank_variables
from mslaunch.errors import LaunchError
from mslaunch.lean import TYPE_CHECKING, signal
from mslaunch.model import AppPlan, NodePlan, RankPlan
from mslaunch.wire import frames, messages
from mslaunch.wire.frames import NO_RANK, Frame
from mslaunch.wire.loop import Loop
from mslaunch.wire.outbox import HIGH, LOW, Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.agent.files import Session
    from mslaunch.agent.traces import Tracer

GRACE = 2.0  #: seconds from TERM to KILL before a plan says otherwise


def serve(link: tuple[int, int], guard: tuple[int, int], environ: Mapping[str, str], by_ssh: bool) -> None:
    """Serve the link, its reader and its writer, until it ends.

    See `guard.guarded` for what is said on the two of `guard`.  `environ` is what ranks inherit; `by_ssh`: its
    SSH_CONNECTION is taken for that of this link.  (Should it be another's, its address is a candidate that no token
    will prove.)
    """
    with Loop() as loop:
        agent = Agent(loop, link, guard, environ)
        for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGTSTP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTTOU"):
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
    """One node's ranks, and the link to the launcher."""

    def __init__(self, loop: Loop, link: tuple[int, int], guard: tuple[int, int], environ: Mapping[str, str]) -> None:
        self._loop = loop
        self._reader = reader = link[0]
        self._guard, self._tell = guard
        self._guarded = False
        self._environ = environ
        self._decoder = frames.Decoder()
        self._outbox = Outbox(loop, link[1], lambda error: self.upstream_lost(), lambda size: self._resume())
        self._ranks: dict[int, Rank] = {}
        self._plan: NodePlan | None = None
        self._held: list[Listener] = []
        self._door: Door | None = None
        self._prober: Prober | None = None
        self._services: list[Service] = []
        self._tracer: Tracer | None = None
        self._files: Session | None = None
        self._paused = False
        self._lost = False
        self._ending = False
        self._on = {
            frames.LAUNCH: self._launch,
            frames.STDIN: self._stdin,
            frames.SIGNAL: self._signal,
            frames.END: self._end,
            frames.RESERVE: self._reserve,
            frames.PROBE: self._probe,
            frames.RESTART: self._restart,
            frames.TRACE: self._trace,
            frames.FILE: self._file,
            frames.DATA: self._data,
            frames.DESCRIBE: self._describe,
        }
        os.set_blocking(reader, False)
        os.set_blocking(self._guard, False)
        loop.reader(reader, self._read)
        loop.reader(self._guard, self._heard_guard)

    @property
    def done(self) -> bool:
        """The launcher is gone and nothing is left to end."""
        return (
            self._lost
            and all(rank.over for rank in self._ranks.values())
            and not any(s.running for s in self._services)
        )

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
        greeting = messages.Hello(os.uname().nodename, *numbers, version, tuple(found), seen_from)
        self._outbox.send(frames.MAGIC, frames.encode(frames.HELLO, payload=messages.pack_hello(greeting)))

    def fault(self) -> None:
        """Our own mistake: tell the launcher, with the traceback."""
        import traceback

        self._outbox.send(frames.encode(frames.FAULT, payload=traceback.format_exc().encode("utf-8", "replace")))
        self._outbox.flush()
        for rank in self._ranks.values():
            rank.signal(signal.SIGKILL)

    def output(self, kind: int, rank: int, data: bytes) -> None:
        """See `ranks.Sink`."""
        self._outbox.send(frames.header(kind, len(data), rank), data)
        if self._outbox.pending > HIGH and not self._paused:
            self._paused = True
            for other in self._ranks.values():
                other.watch(False)

    def _resume(self) -> None:
        if self._paused and self._outbox.pending < LOW:
            self._paused = False
            for rank in self._ranks.values():
                rank.watch(True)

    def started(self, rank: int, pid: int) -> None:
        """A rank or a service runs."""
        self._outbox.send(frames.encode(frames.STARTED, rank, str(pid).encode()))

    def exited(self, rank: int, code: int | None, signum: int | None) -> None:
        """See `ranks.Sink`."""
        self._send_exit(rank, messages.Exit(code, signum))
        if self._lost and not self._rank_pids():
            for service in self._services:
                service.end(at_once=True)

    def _send_exit(self, rank: int, ended: messages.Exit) -> None:
        self._outbox.send(frames.encode(frames.EXIT, rank, messages.pack_exit(ended)))

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
        from mslaunch.agent.topology import read_topology

        answer = messages.pack_topology(read_topology(usable_cpus()))
        self._outbox.send(frames.encode(frames.TOPOLOGY, payload=answer))

    def _reserve(self, frame: Frame) -> None:
        """Hold as many ports as the payload says; they are given back when the ranks start, or to a service."""
        try:
            self._held = [Listener() for _ in range(int(frame.payload))]
            self._door = Door(self._loop)
        except OSError as error:
            self._send_exit(NO_RANK, messages.Exit(None, None, f"no free TCP port was found: {error.strerror}"))
            return
        answer = messages.Reserved(tuple(held.port for held in self._held), self._door.port, self._door.token)
        self._outbox.send(frames.encode(frames.RESERVED, payload=messages.pack_reserved(answer)))

    def _probe(self, frame: Frame) -> None:
        self._prober = Prober(self._loop, *messages.unpack_probe(frame.payload), self._reached)

    def _reached(self, found: list[str]) -> None:
        self._outbox.send(frames.encode(frames.REACHED, payload=messages.pack_addresses(found)))

    def _launch(self, frame: Frame) -> None:
        plan = self._plan = messages.unpack_plan(frame.payload)
        if self._door:
            self._door.close()
        if not self._guarded:
            select.select([self._guard], [], [])  # orphans of the ranks must find somebody
            self._heard_guard()
        if self._lost:
            return
        self._take_services(plan)
        self._null = null = os.open("/dev/null", os.O_RDONLY)
        self._room = Room(len(plan.ranks), null)
        base = inherited(self._environ, plan)
        for index, app in enumerate(plan.apps):
            ranks = [rank for rank in plan.ranks if rank.app == index]
            if ranks:
                self._launch_app(app, ranks, base, null)

    def _take_services(self, plan: NodePlan) -> None:
        for service in plan.services:
            listener = next((held for held in self._held if held.port == service.port), None)
            self._services.append(Service(service, self._loop, self, listener, self._rank_pids))
            if listener:
                self._held.remove(listener)
        for held in self._held:
            held.close()
        self._held = []

    def _rank_pids(self) -> list[int]:
        return [rank.pid for rank in self._ranks.values() if rank.running]

    def _launch_app(self, app: AppPlan, ranks: list[RankPlan], base: dict[str, str], null: int) -> None:
        """Start the ranks of one executable; what is wrong with it is said for each, in the same words."""
        for rank in ranks:
            try:
                self._launch_rank(rank, app, base, null)
            except LaunchError as error:
                self._send_exit(rank.rank, messages.Exit(error.code, None, error.what, error.todo))

    def _launch_rank(self, plan: RankPlan, app: AppPlan, base: dict[str, str], null: int) -> None:
        assert self._plan is not None
        given = self._session.variables(plan.rank) if self._plan.session else {}
        wdir = self._session.place(plan.rank) if app.in_session else app.wdir
        env = rank_variables(base, app, plan, {**given, "PWD": wdir}, self._plan.defaults)
        check_wdir(wdir)
        os.chdir(wdir)
        path, argv = command(app, plan, self._plan.index_argv, env.get("PATH", os.defpath), wdir)
        pty = self._plan.pty == "yes" or (self._plan.pty == "auto" and not is_python(path))
        rank = Rank(plan.rank, self._loop, self)
        try:
            with bound(plan.cpus):
                fds = open_fds(null, plan.rank in self._plan.stdin, self._plan.merge, pty, len(self._plan.ranks))
                rank.start(path, argv, env, fds, self._room)
        except OSError as error:
            raise explain_spawn(app.argv[0], error) from None
        self._ranks[plan.rank] = rank
        rank.watch(not self._paused)
        self.started(plan.rank, rank.pid)

    @property
    def _session(self) -> Session:
        """Made when it is first needed, by files or by ranks."""
        if self._files is None:
            from mslaunch.agent.files import Session

            self._files = Session(self._environ, self._tell, self._stored)
        return self._files

    def _file(self, frame: Frame) -> None:
        self._session.begin(*messages.unpack_file(frame.payload))

    def _data(self, frame: Frame) -> None:
        self._session.write(frame.payload)

    def _stored(self, error: str, todo: str) -> None:
        self._outbox.send(frames.encode(frames.STORED, payload=messages.pack_stored(error, todo)))

    def _restart(self, frame: Frame) -> None:
        """A rank that has ended is started again, once nothing is left of its streams."""
        count = messages.unpack_number(frame.payload)
        self._ranks[frame.rank].retire(lambda: self._launch_again(frame.rank, count))

    def _launch_again(self, number: int, count: int) -> None:
        if self._ending or self._plan is None:
            self._send_exit(number, messages.Exit(None, None, "the job is being ended"))
            return
        self._plan = plan = self._plan._replace(stdin=tuple(rank for rank in self._plan.stdin if rank != number))
        rank = next(rank for rank in plan.ranks if rank.rank == number)
        again = rank._replace(env=(*rank.env, f"OMPI_MCA_orte_num_restarts={count}"))
        del self._ranks[number]
        self._launch_app(plan.apps[rank.app], [again], inherited(self._environ, plan), self._null)

    def _stdin(self, frame: Frame) -> None:
        rank = self._ranks.get(frame.rank)
        if rank:
            rank.feed(frame.payload)
        else:
            self.stdin_taken(frame.rank, len(frame.payload))

    def _signal(self, frame: Frame) -> None:
        signum = int(frame.payload)
        for rank in self._ranks.values():
            if frame.rank in (NO_RANK, rank.number):
                rank.signal(signum)

    def _trace(self, frame: Frame) -> None:
        """Look at the stacks of all ranks, no longer than the payload says."""
        from mslaunch.agent.traces import Tracer

        pids = {rank.number: rank.pid for rank in self._ranks.values() if rank.running}
        self._tracer = Tracer(self._loop, pids, self._environ, self._traced)
        self._tracer.begin(float(frame.payload))

    def _traced(self, rank: int, traced: messages.Traced | None) -> None:
        self._outbox.send(frames.encode(frames.TRACES, rank, messages.pack_traced(traced) if traced else b""))

    # --- the end

    def _end(self, frame: Frame) -> None:
        """TERM, the grace of the payload in seconds, KILL; "0" is KILL at once."""
        self._end_all(float(frame.payload))

    def _end_all(self, grace: float) -> None:
        self._ending = True
        if self._tracer:
            self._tracer.stop()
        for rank in self._ranks.values():
            rank.hurry()
            if grace > 0:
                rank.signal(signal.SIGCONT)  # a stopped process cannot hear TERM
                rank.signal(signal.SIGTERM)
            else:
                rank.signal(signal.SIGKILL)
        for service in self._services:
            service.end(at_once=grace <= 0 or not self._rank_pids())
        if grace > 0:
            self._loop.after(grace, lambda: self._end_all(0.0))

    def close(self) -> None:
        """Nothing runs any more."""
        if self._files:
            self._files.close()

    def upstream_lost(self) -> None:
        """The launcher or our guard is gone: end what we hold."""
        if self._lost:
            return
        self._lost = True
        self._loop.reader(self._reader, None)
        self._outbox.close()
        for held in self._held:
            held.close()
        if self._paused:
            self._paused = False
            for rank in self._ranks.values():
                rank.watch(True)  # what it prints is dropped, but its end is seen
        if self._ranks or self._services:  # a rank that has ended may have left an orphan that holds its streams
            self._end_all(self._plan.grace if self._plan else GRACE)
