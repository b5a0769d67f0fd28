"""A service that was started: its kind, its processes one after the other, its restarts, and its end.

It waits at its port (`ServicePort`), or it has a process, a `ServiceRun`.  One that ended well while ranks still run
goes back to its port, for the next program of a script that runs two.

A process may turn out to be unnecessary.  One that finds out by itself whether its framework is installed, or that was
started on a guess, is reported to the launcher only once it has printed something, listens, or has failed.
"""

from __future__ import annotations

import os
from errno import EADDRINUSE

from mslaunch.agent.ranks.cpu_affinity import bound
from mslaunch.agent.ranks.rank import ProcessEvents, RankProcess, open_fds
from mslaunch.agent.services.readiness import await_idle, await_listener
from mslaunch.agent.services.service_kind import ProgramOfRanks
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, load, signal
from mslaunch.host.listeners import by_whom
from mslaunch.host.programs import check_wdir, explain_spawn
from mslaunch.protocol.frames import SERVES

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.launcher_link import AgentContext
    from mslaunch.agent.ports import ServicePort
    from mslaunch.agent.services.readiness import PortPoll
    from mslaunch.agent.services.service_kind import ServiceCommand, ServiceKind, Watchdog
    from mslaunch.datamodel.node_plan import NodePlan, ServicePlan

KILL_AFTER = 1.0  #: seconds from TERM to KILL, once nobody needs the service any more
#: the kinds of services (`ServicePlan.kind`): who knows what one runs, as `service_kind.ServiceKind` says
KINDS = {"mindspore": "agent.services.mindspore_scheduler:SchedulerCommands"}


class Service:
    """A service from its first start to its end."""

    def __init__(
        self,
        context: AgentContext,
        ranks: Callable[[], list[int] | None],
        plan: NodePlan,
        service: ServicePlan,
        port: ServicePort,
    ) -> None:
        """`ranks`: see `ServiceManager`; `port` is that of the `service` of the `plan`."""
        self._context = context
        self._ranks = ranks
        self._service = service
        self._port = port
        self._kind: ServiceKind = load(KINDS[service.kind])(
            ProgramOfRanks(plan, service, context.environ, context.session)
        )
        self._command: ServiceCommand | None = None  # what it ran last
        self._run: ServiceRun | None = None
        self._awaited = service.first  # SERVES is still to be sent
        self._needed = False  # a rank has connected: not to be installed is an error now
        self._watched = True
        self._ending = False
        self._idle: PortPoll | None = None

    @property
    def running(self) -> bool:
        """True while its process, or what it still has to say, is there."""
        return self._run is not None and not self._run.process.over

    def watch(self, on: bool) -> None:
        """Read what it prints, or let it wait."""
        self._watched = on
        if self._run:
            self._run.process.watch(on)

    # --- its start

    def start(self, early: bool) -> None:
        """Start it: `early`, before anybody has asked for it, or since somebody has connected.

        One that is no `first` one is started early on a guess, and is not reported before it serves.
        """
        guessed = early and not self._service.first
        if early:
            self._try(lambda: self._kind.early(guessed), guessed)
        else:
            pids = self._ranks()
            self._needed = pids is None
            self._try(lambda: self._kind.on_connection(pids))

    def _try(self, find: Callable[[], ServiceCommand | None], guessed: bool = False, again: bool = False) -> None:
        """Start what is found, or report why it cannot be; wait for a connection if there is nothing yet."""
        try:
            if self._ending:
                raise LaunchError("the job is being ended")
            command = find()
            if command:
                self._command = command
                self._port.hand_over()
                self._start(command, guessed, again)
            else:
                self._wait()
        except LaunchError as error:
            self._port.hand_over()
            self._context.link.not_started(self._service.number, error)

    def _start(self, command: ServiceCommand, guessed: bool, again: bool) -> None:
        run = ServiceRun(self._context, self._service, command, self._exited, guessed, self._port.address)
        run.start()
        self._run = run
        run.process.watch(self._watched)
        if again:
            run.watchdog = self._kind.watchdog(self._context.loop, run.kill, command)
        if not self._service.port:
            self._serves()
        elif self._awaited or guessed or not run.reported:
            run.await_port(self._serves)

    def _serves(self) -> None:
        if self._awaited:
            self._awaited = False  # it was to be started before the ranks, which need not wait any longer
            self._context.link.send(SERVES, self._service.number)

    def _wait(self, needed: bool | None = None) -> None:
        """Go back to the port.

        If another process has it now, that is an error (`LaunchError`) where a rank needs the service, and a notice
        else; `needed` None: those ranks do that have loaded what it serves.
        """
        try:
            self._port.wait()
        except OSError as error:
            number = self._port.number
            how = f"is now in use{by_whom(number)}" if error.errno == EADDRINUSE else f"is lost: {error.strerror}"
            pids = self._ranks()
            if needed or (needed is None and (pids is None or self._kind.on_connection(pids))):
                todo = "launch again, or name another port with --scheduler HOST:PORT"
                raise LaunchError(f"port {number} {how}", todo=f"it was ours a moment ago: {todo}") from None
            self._context.link.notice(self._service.number, f"port {number} {how}; no rank can find its service there")
        self._serves()

    def _wait_or_fail(self, needed: bool | None = None) -> LaunchError | None:
        try:
            self._wait(needed)
        except LaunchError as error:
            return error
        return None

    def restart(self) -> None:
        """It has ended: start it again, once nothing is left of its streams."""
        self._port.hand_over()
        if self._run:
            self._run.process.retire(self._start_again)
        else:
            self._start_again()

    def _start_again(self) -> None:
        self._run = None
        self._awaited = self._service.first
        if self._command:
            self._try(lambda: self._command, again=True)
        elif self._service.first:
            self.start(early=True)
        else:
            self._try(lambda: None)

    # --- its end

    def _exited(self, status: ExitStatus) -> None:
        run = self._run
        assert run
        run.stop_waiting()
        if self._idle:
            self._idle.cancel()
        missing = bool(run.command.missing) and status.code == run.command.missing
        if missing and not self._needed and not run.reported:  # nobody has heard of it, unless it has printed something
            run.process.retire(lambda: self._report(run, status, missing) if run.reported else self._forget())
        else:
            self._report(run, status, missing)

    def _report(self, run: ServiceRun, status: ExitStatus, missing: bool) -> None:
        """Report the end of a process, which may have been `missing` its framework."""
        needed: bool | None = False  # one that has ended well has served
        error = run.error
        if missing and self._needed:  # no other interpreter is known
            error = self._kind.not_installed(run.command)
        elif missing or run.guessed:  # a rank that needs it will connect, and then the error is reported
            status, error = ExitStatus(0), None
            needed = None if missing else True
        run.report()
        if status.code == 0 and not self._ending and self._service.port:
            error = self._wait_or_fail(needed) or error
        if error:
            self._context.link.not_started(self._service.number, error)
        else:
            self._context.link.exited(self._service.number, status)

    def _forget(self) -> None:
        """If a rank connects after all, its process tells which interpreter has the framework."""
        self._run = self._command = None
        if not self._ending:
            self._try(lambda: None)

    def end(self, at_once: bool) -> None:
        """The job is ending; not `at_once`: ranks may still be using it."""
        self._ending = True
        self._port.close()
        if at_once and self._run:
            self._run.end()

    def end_idle(self) -> None:
        """End it once nobody is connected to it."""
        if self._run and self._run.process.running and self._service.port:
            self._run.stop_waiting()
            self._idle = await_idle(self._context.loop, self._service.port, lambda: self.end(True))
        else:
            self.end(True)


class ServiceRun:
    """A process, and what it waits for."""

    def __init__(
        self,
        context: AgentContext,
        service: ServicePlan,
        command: ServiceCommand,
        exited: Callable[[ExitStatus], None],
        guessed: bool,
        address: str,
    ) -> None:
        """`address`: where it has to listen; "": anywhere."""
        self.command = command
        self._address = address
        self.guessed = guessed  #: no rank has needed it yet
        self.reported = False
        self.error: LaunchError | None = None  #: why it had to be killed
        self.watchdog: Watchdog | None = None  #: reads what it prints
        self.process = RankProcess(
            service.number, context.loop, ProcessEvents(self._output, lambda number, status: exited(status))
        )
        self._context = context
        self._service = service
        self._ended_streams: list[int] = []  # not yet reported
        self._port_wait: PortPoll | None = None

    def start(self) -> None:
        """Raises `LaunchError`."""
        command = self.command
        try:
            check_wdir(command.wdir)
            os.chdir(command.wdir)
            with bound(self._service.cpus):
                self.process.start(command.path, command.argv, command.env, open_fds())
        except OSError as error:
            raise explain_spawn(command.argv[0], error) from None
        if not command.missing:
            self.report()

    def report(self) -> None:
        """Tell the launcher that it runs, or ran."""
        if not self.reported:
            self.reported = True
            self._context.link.started(self._service.number, self.process.pid)
            for kind in self._ended_streams:
                self._context.link.output(kind, self._service.number, b"")

    def await_port(self, serves: Callable[[], None]) -> None:
        """Call `serves` once it listens at its port; it is killed if another process does."""

        def done(error: LaunchError | None) -> None:
            if error:
                self.kill(error)
            else:
                self.guessed = False
                self.report()
                serves()

        loop, port = self._context.loop, self._service.port
        self._port_wait = await_listener(loop, port, self.process.pid, done, self._address)

    def stop_waiting(self) -> None:
        """It has ended, or is about to."""
        if self._port_wait:
            self._port_wait.cancel()
        if self.watchdog:
            self.watchdog.cancel()

    def kill(self, error: LaunchError) -> None:
        """End it with an error, because it cannot do its work."""
        self.error = error
        self.process.signal(signal.SIGKILL)

    def end(self) -> None:
        """TERM, and KILL a second later."""
        process = self.process
        if process.over:
            return
        process.hurry(at_once=not process.running)
        process.signal(signal.SIGTERM)
        self._context.loop.after(KILL_AFTER, lambda: _kill(process))

    def _output(self, kind: int, number: int, data: bytes) -> None:
        if data:
            self.report()
            if self.watchdog:
                self.watchdog.read(data)
        if self.reported:
            self._context.link.output(kind, number, data)
        else:
            self._ended_streams.append(kind)


def _kill(process: RankProcess) -> None:
    process.hurry(at_once=True)
    process.signal(signal.SIGKILL)
