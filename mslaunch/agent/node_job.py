"""The crew: all ranks of a node, with the services they need, started from a plan, started again, and ended together.

It knows no link and no frames: what happens is told to a `NodeJobSink`, the agent.  The surprising thing: a rank that
is started again finds its standard input empty, since its forerunner has read what there was.
"""

from __future__ import annotations

import os

from mslaunch.agent.ranks.cpu_affinity import bound
from mslaunch.agent.ranks.pipes import FdPlacement, open_fds
from mslaunch.agent.ranks.rank import RankProcess
from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.agent.services.manager import ServiceManager
from mslaunch.datamodel.node_plan import is_service
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.programs import check_wdir, command, explain_spawn, is_python
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from mslaunch.agent.mpi.front_end import MpiFrontEnd
    from mslaunch.agent.mpi.protocol_choice import Program
    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.agent.services.manager import ServiceSink
    from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan
    from mslaunch.host.free_ports import Listener
    from mslaunch.runtime.loop import Loop

    class NodeJobSink(ServiceSink, Protocol):
        """Who hears of the crew: the agent."""

        def launched(self) -> None:
            """All ranks of a plan have been started, or have not."""


class NodeJob:
    """One node's ranks and services."""

    def __init__(
        self,
        loop: Loop,
        sink: NodeJobSink,
        environ: Mapping[str, str],
        session: Callable[[], SessionDir],
        mpi: MpiFrontEnd,
        need: Callable[[str, Callable[[], None]], None],
    ) -> None:
        """`environ` is what ranks inherit; `session()` is the node's session directory, asked for only if needed.

        `need` goes on when a part is here.
        """
        self._loop = loop
        self._sink = sink
        self._environ = environ
        self._session = session
        self._mpi = mpi
        self._need = need
        self._ranks: dict[int, RankProcess] = {}
        self._services = ServiceManager(loop, sink, environ, session, need, self._processes)
        self._plans: dict[int, NodePlan] = {}  # by rank
        self._grace = 0.0
        self._size = 0  # how many ranks run, once those of the last plan do
        self._null = -1  # /dev/null
        self._room: FdPlacement | None = None
        self._paused = False
        self._unbound = ""  # why the memory of the last rank that was started is not bound
        self._said = ""  # the same, as some rank was told
        self.ending = False
        self.waiting = 0  #: plans whose ranks cannot start yet, since a part is on its way

    @property
    def over(self) -> bool:
        """Nothing runs, and nobody has more to say."""
        return all(rank.over for rank in self._ranks.values()) and not self._services.running

    def pids(self) -> dict[int, int]:
        """Rank -> process id, of those that run."""
        return {rank.number: rank.pid for rank in self._ranks.values() if rank.running}

    def _processes(self) -> list[int] | None:
        return [*self.pids().values()] if self._plans else None

    # --- the beginning

    def launch(self, plan: NodePlan, held: dict[int, Listener]) -> None:
        """Start all ranks; of the ports that were `held`, services keep their own, and the others are let go.

        A second plan adds ranks to those of the first: they were spawned.  One that has services and no ranks comes
        before them, and leaves the other ports held.
        """
        self._grace = plan.grace
        self._services.add(plan, held)
        if plan.services and not plan.ranks:
            return
        for listener in held.values():
            listener.close()
        held.clear()
        self._plans.update((rank.rank, plan) for rank in plan.ranks)
        if self._null < 0:
            self._null = os.open("/dev/null", os.O_RDONLY)
        self._size = len(self.pids()) + len(plan.ranks)
        if self._room:
            self._room.widen(self._size)
        else:
            self._room = FdPlacement(self._size, self._null)
        base = inherited(self._environ, plan)
        self.waiting += 1

        def go_on() -> None:
            self._mpi.prepare(plan.world, self._programs(plan, base), lambda: self._start_all(plan, base))

        self._need("agent.ranks.numa_memory", go_on) if any(rank.memory for rank in plan.ranks) else go_on()

    def _programs(self, plan: NodePlan, base: Mapping[str, str]) -> list[tuple[int, AppPlan, Program]]:
        """What is to be started, for who must know its MPI library.

        A program that cannot be started is passed over: its ranks will say so.
        """
        found: list[tuple[int, AppPlan, Program]] = []
        for index, app in enumerate(plan.apps):
            told = next((rank for rank in plan.ranks if rank.app == index), None)
            if told is None:
                continue
            env = rank_variables(base, app, told, {"PWD": app.wdir}, plan.defaults)
            try:
                path, argv = command(app, told, False, env.get("PATH", os.defpath), app.wdir)
            except LaunchError:
                continue
            found.append((index, app, (path, argv, env, app.wdir)))
        return found

    def _start_all(self, plan: NodePlan, base: Mapping[str, str]) -> None:
        self.waiting -= 1
        self._mpi.begin(plan.world, {rank.rank: rank.cpus for rank in plan.ranks})
        for index, app in enumerate(plan.apps):
            for rank in plan.ranks:
                if rank.app == index:
                    self._start(plan, rank, app, base)
        self._sink.launched()

    def _start(self, plan: NodePlan, rank: RankPlan, app: AppPlan, base: Mapping[str, str]) -> None:
        """Start a rank, or say what is wrong; for all ranks of a program that is said in the same words."""
        try:
            if self.ending:
                raise LaunchError("the job is being ended")
            started = self._started(plan, rank, app, base)
        except LaunchError as error:
            self._sink.not_started(rank.rank, error)
            return
        self._ranks[rank.rank] = started
        started.watch(not self._paused)
        self._sink.started(rank.rank, started.pid)
        if self._unbound != self._said:
            self._said = self._unbound
            text = f"mslaunch: {self._said}; ranks run without that\n"
            self._sink.output(STDOUT if plan.merge else STDERR, rank.rank, text.encode())

    def _started(self, plan: NodePlan, told: RankPlan, app: AppPlan, base: Mapping[str, str]) -> RankProcess:
        folder = self._session().place(f"rank.{told.rank}") if plan.session else ""
        wdir = folder if app.in_session else app.wdir
        check_wdir(wdir)
        given, line = self._mpi.variables(plan.world, told.app, told.rank)
        try:
            given["PWD"] = wdir
            if folder:
                given["OMPI_FILE_LOCATION"] = folder
            env = rank_variables(base, app, told, given, plan.defaults)
            return self._spawned(plan, told, app, env, wdir, line)
        finally:
            if line >= 0:
                os.close(line)

    def _spawned(
        self, plan: NodePlan, told: RankPlan, app: AppPlan, env: dict[str, str], wdir: str, line: int
    ) -> RankProcess:
        """`line` is the rank's end of the socket on which it may speak PMI, its number 3; or -1."""
        os.chdir(wdir)
        path, argv = command(app, told, plan.index_argv, env.get("PATH", os.defpath), wdir)
        pty = plan.pty == "yes" or (plan.pty == "auto" and not is_python(path))
        rank = RankProcess(told.rank, self._loop, self._sink)
        assert self._room
        try:
            with bound(told.cpus, told.memory) as binding:
                fds = open_fds(self._null, told.rank in plan.stdin, plan.merge, pty, self._size)
                rank.start(path, argv, env, fds, self._room, line)
            self._unbound = binding.refused or self._said
        except OSError as error:
            raise explain_spawn(app.argv[0], error) from None
        return rank

    # --- once more

    def restart(self, rank: int, count: int) -> None:
        """Start a rank or service that has ended again, for the `count`th time, once nothing is left of its streams."""
        if is_service(rank):
            self._services.restart(rank)
            return
        self._ranks[rank].retire(lambda: self._start_again(rank, count))

    def _start_again(self, number: int, count: int) -> None:
        del self._ranks[number]
        plan = self._plans[number]._replace(stdin=())
        rank = next(rank for rank in plan.ranks if rank.rank == number)
        told = (f"OMPI_MCA_orte_num_restarts={count}", f"MSLAUNCH_ATTEMPT={count + 1}")
        again = rank._replace(env=(*rank.env, *told))
        self._start(plan, again, plan.apps[rank.app], inherited(self._environ, plan))

    # --- while it runs

    def watch(self, on: bool) -> None:
        """Hear what ranks print, or let them wait."""
        self._paused = not on
        for rank in self._ranks.values():
            rank.watch(on)
        self._services.watch(on)

    def feed(self, number: int, data: bytes) -> None:
        """Bytes for the standard input of a rank."""
        rank = self._ranks.get(number)
        if rank:
            rank.feed(data)
        else:
            self._sink.stdin_taken(number, len(data))

    def signal(self, signum: int, number: int | None = None) -> None:
        """Send a signal to one rank's process group, or to all."""
        for rank in self._ranks.values():
            if number in (None, rank.number):
                rank.signal(signum)

    # --- the end

    def end(self, grace: float | None = None) -> None:
        """TERM, `grace` seconds (None: as the plan says), KILL; 0 is KILL at once."""
        self.ending = True
        if grace is None:
            grace = self._grace
        for rank in self._ranks.values():
            rank.hurry(at_once=grace <= 0)
        if grace > 0:
            self.signal(signal.SIGCONT)  # a stopped process cannot hear TERM
            self.signal(signal.SIGTERM)
            self._loop.after(grace, lambda: self.end(0.0))
        else:
            self.signal(signal.SIGKILL)
        self.end_services(at_once=grace <= 0 or not self.pids())

    def end_idle_services(self) -> None:
        """See `Services.end_idle`."""
        self._services.end_idle()

    def end_services(self, at_once: bool) -> None:
        """See `Services.end`."""
        self._services.end(at_once)
