"""The agent: told a plan by frames, it starts the ranks of its node, carries their output up, and ends them.

`serve` is its whole life.  It knows its own node's plan, not the allocation and no other node.  Losing the link is
the order to end everything; so is losing its guard.  The surprising thing: it stops reading its ranks, not its link,
when the launcher does not keep up, so that an order to end them always arrives.
"""

from __future__ import annotations

import os
import select
import sys

from mslaunch.agent.fds import Room, open_fds
from mslaunch.agent.network import Door, Listener, Prober, addresses
from mslaunch.agent.program import check_wdir, explain_spawn, find_program, is_python
from mslaunch.agent.ranks import Rank
from mslaunch.agent.services import Service
from mslaunch.errors import LaunchError
from mslaunch.lean import TYPE_CHECKING, signal
from mslaunch.model import AppPlan, NodePlan, RankPlan
from mslaunch.wire import frames, messages
from mslaunch.wire.frames import NO_RANK, Frame
from mslaunch.wire.loop import Loop
from mslaunch.wire.outbox import HIGH, LOW, Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping

GRACE = 2.0  #: seconds from TERM to KILL before a plan says otherwise


def serve(reader: int, writer: int, guard: int, environ: Mapping[str, str], by_ssh: bool) -> None:
    """Serve the link `reader`/`writer` until it ends.

    See `guard.guarded` for what `guard` says.  `environ` is what ranks inherit; `by_ssh`: its SSH_CONNECTION is taken
    for that of this link.  (Should it be another's, its address is a candidate that no token will prove.)
    """
    with Loop() as loop:
        agent = Agent(loop, reader, writer, guard, environ)
        for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGTSTP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTTOU"):
            loop.signal(getattr(signal, name), None)
        loop.signal(signal.SIGTERM, agent.upstream_lost)
        try:
            agent.hello(by_ssh)
            loop.run(lambda: agent.done)
        except Exception:
            agent.fault()
            raise


class Agent:
    """One node's ranks, and the link to the launcher."""

    def __init__(self, loop: Loop, reader: int, writer: int, guard: int, environ: Mapping[str, str]) -> None:
        self._loop = loop
        self._reader = reader
        self._guard = guard
        self._guarded = False
        self._environ = environ
        self._decoder = frames.Decoder()
        self._outbox = Outbox(loop, writer, lambda error: self.upstream_lost(), lambda size: self._resume())
        self._ranks: dict[int, Rank] = {}
        self._plan: NodePlan | None = None
        self._held: list[Listener] = []
        self._door: Door | None = None
        self._prober: Prober | None = None
        self._services: list[Service] = []
        self._paused = False
        self._lost = False
        self._on = {
            frames.LAUNCH: self._launch,
            frames.STDIN: self._stdin,
            frames.SIGNAL: self._signal,
            frames.END: self._end,
            frames.RESERVE: self._reserve,
            frames.PROBE: self._probe,
        }
        os.set_blocking(reader, False)
        os.set_blocking(guard, False)
        loop.reader(reader, self._read)
        loop.reader(guard, self._heard_guard)

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
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        found = addresses()
        seen_from = ""
        if by_ssh:
            connection = self._environ.get("SSH_CONNECTION", "").split()  # sshd(8): client, port, server, port
            if len(connection) == 4:
                seen_from = connection[0]
                found = list(dict.fromkeys([connection[2], *found]))
        version = ".".join(map(str, sys.version_info[:3]))
        greeting = messages.Hello(os.uname().nodename, os.getpid(), cpus, version, tuple(found), seen_from)
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
        null = os.open("/dev/null", os.O_RDONLY)
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
        shared = {**base, **_variables(app.env)}
        try:
            check_wdir(app.wdir)
            os.chdir(app.wdir)
            # the rank's own -x PATH counts; every rank of an app has the same
            path = find_program(app.argv[0], shared.get("PATH", os.defpath), app.wdir)
            for rank in ranks:
                self._launch_rank(rank, path, app, shared, null)
        except LaunchError as error:
            for rank in ranks:
                if rank.rank not in self._ranks:
                    self._send_exit(rank.rank, messages.Exit(error.code, None, error.what, error.todo))

    def _launch_rank(self, plan: RankPlan, path: str, app: AppPlan, shared: dict[str, str], null: int) -> None:
        assert self._plan is not None
        env = {**shared, **_variables(plan.env), "PWD": app.wdir, **_variables(app.env)}
        _set_defaults(env, self._plan.defaults)
        pty = self._plan.pty == "yes" or (self._plan.pty == "auto" and not is_python(path))
        rank = Rank(plan.rank, self._loop, self)
        try:
            fds = open_fds(null, plan.rank in self._plan.stdin, self._plan.merge, pty, len(self._plan.ranks))
            with _bound(plan.cpus):
                rank.start(path, list(app.argv), env, fds, self._room)
        except OSError as error:
            raise explain_spawn(app.argv[0], error) from None
        self._ranks[plan.rank] = rank
        rank.watch(not self._paused)
        self.started(plan.rank, rank.pid)

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

    # --- the end

    def _end(self, frame: Frame) -> None:
        """TERM, the grace of the payload in seconds, KILL; "0" is KILL at once."""
        self._end_all(float(frame.payload))

    def _end_all(self, grace: float) -> None:
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
        if self._rank_pids() or self._services:
            self._end_all(self._plan.grace if self._plan else GRACE)


def inherited(environ: Mapping[str, str], plan: NodePlan) -> dict[str, str]:
    """The environment that all ranks of the node share: ours without what a launch around us left, then the plan's."""
    exact = {name for name in plan.scrub if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in plan.scrub if name.endswith("*"))
    kept = {name: value for name, value in environ.items() if name not in exact and not name.startswith(prefixes)}
    kept.update(_variables(plan.env))
    return kept


def _variables(words: tuple[str, ...]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    return {name: value for name, _, value in pairs}


def _set_defaults(env: dict[str, str], words: tuple[str, ...]) -> None:
    for name, value in _variables(words).items():
        env.setdefault(name, value)


class _bound:  # noqa: N801
    """Within it, we run on `cpus` only (indices into those we may use), and so does who is started here."""

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._cpus = cpus
        self._all: set[int] = set()

    def __enter__(self) -> None:
        if self._cpus and hasattr(os, "sched_setaffinity"):
            self._all = os.sched_getaffinity(0)
            usable = sorted(self._all)
            os.sched_setaffinity(0, {usable[index % len(usable)] for index in self._cpus})

    def __exit__(self, *exc: object) -> None:
        if self._all:
            os.sched_setaffinity(0, self._all)
