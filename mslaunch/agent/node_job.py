"""The job of one node: its ranks and their services, started from a plan, and started again."""

from __future__ import annotations

import os

from mslaunch.agent.mpi.wire_up import MpiWireUp
from mslaunch.agent.ranks.cpu_affinity import bound
from mslaunch.agent.ranks.rank import FdPlacement, ProcessEvents, RankProcess, open_fds
from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.agent.services.manager import ServiceManager, may_run_python
from mslaunch.agent.termination import Termination
from mslaunch.datamodel.node_plan import NO_RANK, NODE_MARK, RankPlan, is_service
from mslaunch.errors import LaunchError, exhausted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.programs import check_script, check_wdir, command, explain_spawn, is_python
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.agent.launcher_link import AgentContext
    from mslaunch.agent.mpi.protocols import Program
    from mslaunch.datamodel.node_plan import AppPlan, NodePlan
    from mslaunch.datamodel.node_report import ExitStatus
    from mslaunch.host.free_ports import Listener

_NO_TERMINAL = "no pseudo-terminal can be opened (see /dev/ptmx and /dev/pts), so --pty yes gives the ranks pipes"


class NodeJob:
    """One node's ranks and services."""

    def __init__(self, context: AgentContext, launched: Callable[[], None]) -> None:
        """`launched` is called when the ranks of a plan were started, or were not."""
        self._context = context
        self._link = link = context.link
        self._launched = launched
        self.mpi = MpiWireUp(
            context.loop,
            context.environ,
            context.need,
            link.send,
            self.pids,
            lambda name: context.session().folder(name),
        )
        self._events = ProcessEvents(link.output, self._exited, link.stdin_taken)
        self._services = ServiceManager(context, lambda: [*self.pids().values()] if self._plans else None)
        self._ranks: dict[int, RankProcess] = {}
        self.termination = Termination(context.loop, self._ranks, self.mpi.failing, self._services.end)
        self.end_idle_services = self._services.end_idle
        self._plans: dict[int, NodePlan] = {}  # by rank
        self.marks: set[str] = set()  #: variables that all processes of the node are started with, "NAME=value"
        self._size = 0  # how many ranks run, once those of the last plan do
        self._placement = FdPlacement()
        self._paused = False
        #: the file, its arguments, and whether it gets a terminal, of the ranks that are being started: for 64 of them,
        #: to look for one program 64 times took longer than all else but to start it
        self._commands: dict[tuple[int, object, str, str, object], tuple[str, list[str], bool]] = {}
        self._unbound = ""  # why the memory of the last rank that was started is not bound
        self._reported = ""  # the same, as was reported last
        self._told_of_pipes = False  # that --pty yes gave ranks no terminal
        self.waiting = 0  #: plans whose ranks cannot start yet, since a module is on its way

    @property
    def over(self) -> bool:
        """Nothing runs, and all output has been sent."""
        return all(rank.over for rank in self._ranks.values()) and not self._services.running

    def pids(self) -> dict[int, int]:
        """Rank -> process id, of those that run."""
        return {rank.number: rank.pid for rank in self._ranks.values() if rank.running}

    def program_folders(self) -> list[str]:
        """Where the programs of its ranks lie, then the directories of their PATH."""
        found: dict[str, None] = {}
        for (_, _, wdir, search, _), (path, _, _) in self._commands.items():
            found.update(dict.fromkeys((os.path.dirname(os.path.join(wdir, path)), *search.split(":"))))
        return list(found)

    # --- the beginning

    def launch(self, plan: NodePlan, held: dict[int, Listener]) -> None:
        """Start all ranks; of the ports that were `held`, services keep their own, and the others are let go.

        A second plan adds ranks that MPI_Comm_spawn asked for.  A plan of services without ranks comes first, and
        leaves the other ports held.
        """
        self._link.busy(True)  # to find programs, and what they are linked to, takes as long as file systems like
        self._prepare(plan, held)
        self._link.busy(False)  # a module may be on its way

    def _prepare(self, plan: NodePlan, held: dict[int, Listener]) -> None:
        self.termination.grace, self.termination.to = plan.grace, plan.term_to
        self.marks.update(word for word in plan.env if word.startswith(NODE_MARK))
        base = inherited(self._context.environ, plan)
        self._services.add(plan, held, lambda: self._may_run_python(plan, base))
        if plan.services and not plan.ranks:
            return
        for listener in held.values():
            listener.close()
        held.clear()
        self._plans.update((rank.rank, plan) for rank in plan.ranks)
        self._size = len(self.pids()) + len(plan.ranks)
        self._placement.widen(self._size)
        self.waiting += 1

        def go_on() -> None:
            self._link.busy(True)
            self.mpi.prepare(plan.world, self._programs(plan, base), lambda: self._start_all(plan, base))
            self._link.busy(False)

        self._context.need("agent.ranks.numa_memory", go_on) if any(rank.memory for rank in plan.ranks) else go_on()

    def _programs(self, plan: NodePlan, base: Mapping[str, str]) -> list[tuple[int, AppPlan, Program]]:
        """The programs whose MPI library matters; not those that cannot be started, which their ranks will report."""
        firsts = sorted({rank.app: rank for rank in reversed(plan.ranks)}.items())
        found = [(index, plan.apps[index], _program(plan, first, base)) for index, first in firsts]
        return [(index, app, program) for index, app, program in found if program]

    @staticmethod
    def _may_run_python(plan: NodePlan, base: Mapping[str, str]) -> bool:
        """Whether a program of the job may, on this host or another: what is not here to be looked at may."""
        programs = (_program(plan, RankPlan(NO_RANK, index, ()), base) for index in range(len(plan.apps)))
        return any(program is None or may_run_python(program[0], *program[2:]) for program in programs)

    def _start_all(self, plan: NodePlan, base: Mapping[str, str]) -> None:
        self.waiting -= 1
        self._link.busy(True)
        self._commands.clear()
        self.mpi.begin(plan.world, {rank.rank: rank.cpus for rank in plan.ranks})
        for rank in sorted(plan.ranks, key=lambda rank: rank.app):
            self._link.busy(True)
            self._start(plan, rank, base)
        self._link.busy(False)
        self._launched()

    def _start(self, plan: NodePlan, rank: RankPlan, base: Mapping[str, str]) -> None:
        """Start a rank, or report why not; the launcher joins equal texts."""
        try:
            if self.termination.begun:
                raise LaunchError("the job is being ended")
            process = self._spawn(plan, rank, plan.apps[rank.app], base)
        except LaunchError as error:
            self._link.not_started(rank.rank, error)
            return
        self._ranks[rank.rank] = process
        process.watch(not self._paused)
        self._link.started(rank.rank, process.pid)
        if self._unbound != self._reported:
            self._reported = self._unbound
            text = f"mslaunch: {self._reported}; ranks run without that\n"
            self._link.output(STDOUT if plan.merge else STDERR, rank.rank, text.encode())

    def _spawn(self, plan: NodePlan, rank: RankPlan, app: AppPlan, base: Mapping[str, str]) -> RankProcess:
        folder = self._context.session().rank_dir(f"rank.{rank.rank}") if plan.session else ""
        wdir = folder if app.in_session else app.wdir
        given, pmi = self.mpi.variables(plan.world, rank.app, rank.rank)
        given["PWD"] = wdir
        if folder:
            given["OMPI_FILE_LOCATION"] = folder
        try:
            env = rank_variables(base, app, rank, given, plan)
            search = env.get("PATH", os.defpath)
            key = rank.app, rank.wrapper, wdir, search, plan.index_argv and rank.rank
            if key not in self._commands:
                check_wdir(wdir)
                path, argv = command(app, rank, plan.index_argv, search, wdir)
                check_script(app.argv, wdir)
                pty = plan.pty == "yes" or (plan.pty == "auto" and not is_python(path))
                self._commands[key] = path, argv, pty
            path, argv, pty = self._commands[key]
            os.chdir(wdir)
            process = RankProcess(rank.rank, self._context.loop, self._events)
            with bound(rank.cpus, rank.memory) as binding:
                fds = open_fds(rank.rank in plan.stdin, plan.merge, pty, self._size)
                if plan.pty == "yes" and not (self._told_of_pipes or os.isatty(fds.child[1])):
                    self._link.notice(NO_RANK, _NO_TERMINAL)
                    self._told_of_pipes = True
                process.start(path, argv, env, fds, self._placement, pmi)
        except (OSError, ImportError) as error:
            raise explain_spawn(app.argv[0], exhausted(error)) from None
        finally:
            if pmi:
                pmi.close_child()
        self._unbound = binding.refused or self._reported
        return process

    def restart(self, rank: int, count: int) -> None:
        """Start a rank or service that has ended again, for the `count`th time, once nothing is left of its streams."""
        if is_service(rank):
            self._services.restart(rank)
        else:
            self._ranks[rank].retire(lambda: self._start_again(rank, count))

    def _start_again(self, number: int, count: int) -> None:
        del self._ranks[number]
        plan = self._plans[number]._replace(stdin=())  # the process before has read what there was
        rank = next(rank for rank in plan.ranks if rank.rank == number)
        counted = (f"OMPI_MCA_orte_num_restarts={count}", f"TORCHELASTIC_RESTART_COUNT={count}")
        env = (*rank.env, *counted, f"MSLAUNCH_ATTEMPT={count + 1}")
        self._link.busy(True)
        self._commands.clear()
        self._start(plan, rank._replace(env=env), inherited(self._context.environ, plan))
        self._link.busy(False)

    # --- while it runs

    def watch(self, on: bool) -> None:
        """Read what ranks print, or let them wait."""
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
            self._link.stdin_taken(number, len(data))

    def signal(self, signum: int, number: int | None = None, as_term: bool = False) -> None:
        """Send a signal to one rank's process group, or to all; `as_term`: only to whom SIGTERM would go."""
        for rank in self._ranks.values():
            if number in (None, rank.number):
                rank.ask(signum, self.termination.to) if as_term else rank.signal(signum)

    # --- the end

    def _exited(self, rank: int, status: ExitStatus) -> None:
        failed = status.code != 0
        self.mpi.before_exit(failed)
        self._link.exited(rank, status)
        self.mpi.after_exit(rank, failed)
        self.termination.rank_ended()


def _program(plan: NodePlan, rank: RankPlan, base: Mapping[str, str]) -> Program | None:
    """What a rank runs; None if it cannot be run."""
    app = plan.apps[rank.app]
    env = rank_variables(base, app, rank, {"PWD": app.wdir}, plan)
    try:
        path, argv = command(app, rank, False, env.get("PATH", os.defpath), app.wdir)
    except LaunchError:
        return None
    return path, argv, env, app.wdir
