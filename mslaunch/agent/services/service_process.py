"""One process of a service, from its start to its exit.

It may be in vain: one that finds out by itself whether it is installed, or that was started on a guess, is reported to
the launcher only once it has printed something, listens, or has failed.
"""

from __future__ import annotations

import os

from mslaunch.agent.ranks.cpu_affinity import bound
from mslaunch.agent.ranks.pipes import FdPlacement, open_fds
from mslaunch.agent.ranks.rank import ProcessEvents, RankProcess
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.listeners import ListenWait
from mslaunch.host.programs import check_wdir, explain_spawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.agent.services.held_port import ServiceSink
    from mslaunch.agent.services.service_command import ServiceCommand
    from mslaunch.datamodel.node_plan import ServicePlan
    from mslaunch.datamodel.node_report import ExitStatus
    from mslaunch.errors import LaunchError
    from mslaunch.runtime.loop import Loop

KILL_AFTER = 1.0  #: seconds from TERM to KILL, once nobody needs the service any more


class ServiceRun:
    """A process, and what it waits for."""

    def __init__(
        self,
        loop: Loop,
        sink: ServiceSink,
        service: ServicePlan,
        command: ServiceCommand,
        exited: Callable[[ExitStatus], None],
        guessed: bool,
    ) -> None:
        self.command = command
        self.guessed = guessed  #: no rank has needed it yet
        self.reported = False
        self.error: LaunchError | None = None  #: why it had to be killed
        self.watchdog: Any = None  #: reads what it prints
        self.process = RankProcess(
            service.number, loop, ProcessEvents(self._output, lambda number, status: exited(status))
        )
        self._loop = loop
        self._sink = sink
        self._service = service
        self._ended_streams: list[int] = []  # not yet reported
        self._port_wait: ListenWait | None = None

    def start(self) -> None:
        """Raises `LaunchError`."""
        command = self.command
        null = os.open("/dev/null", os.O_RDONLY)
        try:
            check_wdir(command.wdir)
            os.chdir(command.wdir)
            with bound(self._service.cpus):
                fds = open_fds(null, False, False, False, 1)
                self.process.start(command.path, command.argv, command.env, fds, FdPlacement(0, null))
        except OSError as error:
            raise explain_spawn(command.argv[0], error) from None
        finally:
            os.close(null)
        if not command.missing:
            self.report()

    def report(self) -> None:
        """Tell the launcher that it runs, or ran."""
        if not self.reported:
            self.reported = True
            self._sink.started(self._service.number, self.process.pid)
            for kind in self._ended_streams:
                self._sink.output(kind, self._service.number, b"")

    def await_port(self, serves: Callable[[], None]) -> None:
        """Call `serves` once it listens at its port; it is killed if another process does."""

        def done(error: LaunchError | None) -> None:
            if error:
                self.kill(error)
            else:
                self.guessed = False
                self.report()
                serves()

        self._port_wait = ListenWait(self._loop, self._service.port, self.process.pid, done)

    def stop_waiting(self) -> None:
        """It has ended, or is about to."""
        for wait in filter(None, (self._port_wait, self.watchdog)):
            wait.cancel()

    def kill(self, error: LaunchError) -> None:
        """It cannot do its work."""
        self.error = error
        self.process.signal(signal.SIGKILL)

    def end(self) -> None:
        """TERM, and KILL a second later."""
        process = self.process
        if process.over:
            return
        process.hurry(at_once=not process.running)
        process.signal(signal.SIGTERM)
        self._loop.after(KILL_AFTER, lambda: _kill(process))

    def _output(self, kind: int, number: int, data: bytes) -> None:
        if data:
            self.report()
            if self.watchdog:
                self.watchdog.read(data)
        if self.reported:
            self._sink.output(kind, number, data)
        else:
            self._ended_streams.append(kind)


def _kill(process: RankProcess) -> None:
    process.hurry(at_once=True)
    process.signal(signal.SIGKILL)
