"""A service: one process of the job that is no rank, from its listener or its start to its end, and again.

Until a knock it is a listening socket, so a job that never asks pays for nothing else.  Then its port is handed over:
the listener closes, the service binds it, the rank tries again.  It does not know what a service is for.  The
surprising thing: one that ended well while ranks still run gets its listener back, for the next program of a script
that runs two.
"""

from __future__ import annotations

import os

from mslaunch.agent import on_demand
from mslaunch.agent.ranks.cpu_affinity import bound
from mslaunch.agent.ranks.pipes import FdPlacement, open_fds
from mslaunch.agent.ranks.rank import ProcessEvents, RankProcess
from mslaunch.datamodel.exit_status import ExitStatus
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, signal
from mslaunch.host.free_ports import Listener
from mslaunch.host.programs import check_wdir, explain_spawn
from mslaunch.protocol.frames import STDERR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.datamodel.node_plan import NodePlan, ServicePlan
    from mslaunch.runtime.loop import Loop

    class ServiceSink(Protocol):
        """Who reports to the launcher."""

        def output(self, kind: int, rank: int, data: bytes) -> None:
            """What it has printed; b"" ends the stream."""

        def exited(self, rank: int, status: ExitStatus) -> None:
            """It has ended."""

        def started(self, rank: int, pid: int) -> None:
            """It runs."""

        def serves(self, number: int) -> None:
            """It was to be started before the ranks, and need not be waited for any longer."""

        def not_started(self, rank: int, error: LaunchError) -> None:
            """It does not run, and will not."""


KILL_AFTER = 1.0  #: seconds from TERM to KILL, once nobody needs the service any more
NO_MINDSPORE = 93  #: exit code of a scheduler that has found none; not told to anybody


class ServiceContext(NamedTuple):
    """What all services of a node share."""

    loop: Loop
    sink: ServiceSink
    environ: Mapping[str, str]  # what ranks inherit
    session: Callable[[], SessionDir]
    need: Callable[[str, Callable[[], None]], None]  # goes on when a module is here
    ranks: Callable[[], list[int] | None]  # process ids of the node's ranks, None if it never had any


class Service:
    """One of them."""

    def __init__(
        self, node: ServiceContext, plan: NodePlan, told: ServicePlan, listener: Listener | None, guessed: bool
    ) -> None:
        """`guessed`: start it without a knock, for somebody may need it."""
        self._node = node
        self._plan = plan
        self._told = told
        self._listener = listener
        self._held = listener  # with it goes its claim to the port
        self._command: Any = None  # a `ServiceCommand`: what it ran last
        self._process: RankProcess | None = None
        self._untold: list[int] | None = None  # streams that have ended of a process of which nothing was told yet
        self._awaited = told.first  # SERVES is still to be said
        self._wait: Any = None  # a `ListenWait`
        self._reunion: Any = None  # a `ReconnectWatchdog`, once it was started again
        self._error: LaunchError | None = None  # why its process had to be ended
        self._watched = True
        self._ending = False
        self._known = False  # somebody needs MindSpore, so that its absence is an error
        self._guessed = guessed and not told.first and listener is not None  # and nobody has needed it yet
        if told.first or self._guessed:
            node.need("agent.services.service_program", self._start_first)
        elif listener:
            self._wait_for_knock()

    @property
    def running(self) -> bool:
        """True while its process, or what it still has to say, is there."""
        return self._process is not None and not self._process.over

    def watch(self, on: bool) -> None:
        """See `Services.watch`."""
        self._watched = on
        if self._process:
            self._process.watch(on)

    def end(self, at_once: bool) -> None:
        """See `Services.end`."""
        self._ending = True
        self._close_listener()
        if self._held:
            self._held.close()
        if at_once and self._process and not self._process.over:
            process = self._process
            process.hurry(at_once=not process.running)
            process.signal(signal.SIGTERM)
            self._node.loop.after(KILL_AFTER, lambda: _insist(process))

    def end_idle(self) -> None:
        """See `Services.end_idle`."""
        if self._process and self._process.running and self._told.port:
            if self._wait:
                self._wait.cancel()
            self._wait = _serving().IdleWait(self._node.loop, self._told.port, lambda: self.end(True))
        else:
            self.end(True)

    # --- its port

    def _wait_for_knock(self) -> None:
        if self._listener is None:
            self._listen()
        if self._listener:
            self._node.loop.reader(self._listener.fileno(), self._knocked)

    def _listen(self) -> None:
        try:
            self._listener = Listener(self._told.port)
        except OSError as error:
            what = f"port {self._told.port} of the MindSpore scheduler was taken meanwhile"
            self._node.sink.output(STDERR, self._told.number, f"mslaunch: {what}: {error.strerror}\n".encode())

    def _close_listener(self) -> None:
        if self._listener:
            self._node.loop.reader(self._listener.fileno(), None)
            self._listener.hand_over()
            self._listener = None

    def _knocked(self) -> None:
        """Hand over the port: first give it up, and only then look who asks.

        Closing resets those who have knocked, and they try again within half a second; but a worker that has had
        the time to send its registration waits 15 s for an answer that nobody will give (docs/design.md).
        """
        self._close_listener()
        self._node.need("agent.services.service_program", self._start_for_knock)

    # --- its start

    def _start_first(self) -> None:
        if not self._try(lambda: self._patiently(self._chooser().before_ranks(self._told))):
            self._wait_for_knock()  # nobody can say yet what it is to run
            self._tell_serves()

    def _patiently(self, command: Any) -> Any:
        """One that was started on a guess waits until a rank wants to meet others, however long that takes.

        MS_TOPO_TIMEOUT would end it; ranks have their own.  11 days are near what 31 bits of milliseconds hold.
        """
        if command and self._guessed:
            command.env["MS_TOPO_TIMEOUT"] = "999999"
        return command

    def _start_for_knock(self) -> None:
        self._guessed, self._known, self._reunion = False, self._node.ranks() is None, None
        if not self._try(lambda: self._chooser().after_knock(self._told, self._node.ranks())):
            self._wait_for_knock()  # a rank of another host was first, or not MindSpore at all

    def _chooser(self) -> Any:
        return _serving().CommandResolver(self._plan, self._node.environ, self._node.session)

    def _try(self, find: Callable[[], Any]) -> bool:
        """Start what is found, or say why it cannot be; False if there is nothing yet."""
        try:
            if self._ending:
                raise LaunchError("the job is being ended")
            self._command = find()
            if self._command is None:
                return False
            self._close_listener()
            self._start()
        except LaunchError as error:
            self._close_listener()
            self._node.sink.not_started(self._told.number, error)
        return True

    def _start(self) -> None:
        command, number = self._command, self._told.number
        null = os.open("/dev/null", os.O_RDONLY)
        process = RankProcess(number, self._node.loop, ProcessEvents(self._output, self._exited))
        try:
            check_wdir(command.wdir)
            os.chdir(command.wdir)
            with bound(self._told.cpus):
                fds = open_fds(null, False, False, False, 1)
                process.start(command.path, command.argv, command.env, fds, FdPlacement(0, null))
        except OSError as error:
            raise explain_spawn(command.argv[0], error) from None
        finally:
            os.close(null)
        self._process, self._error = process, None
        self._untold = []
        if not command.searches:  # else it may be in vain, and nobody need hear of it
            self._tell_started()
        process.watch(self._watched)
        self._watch_port(process.pid)

    def _watch_port(self, pid: int) -> None:
        if not self._told.port:
            self._tell_serves()
        elif self._awaited or self._guessed or self._command.searches:
            self._wait = _serving().ListenWait(self._node.loop, self._told.port, pid, self._heard_of_port)

    def _heard_of_port(self, error: LaunchError | None) -> None:
        if error:
            self._kill(error)
        else:
            self._guessed = False
            self._tell_started()
            self._tell_serves()

    def _kill(self, error: LaunchError) -> None:
        self._error = error
        assert self._process
        self._process.signal(signal.SIGKILL)

    def _tell_started(self) -> None:
        if self._untold is not None and self._process:
            ended, self._untold = self._untold, None
            self._node.sink.started(self._told.number, self._process.pid)
            for kind in ended:
                self._node.sink.output(kind, self._told.number, b"")

    def _tell_serves(self) -> None:
        if self._awaited:
            self._awaited = False
            self._node.sink.serves(self._told.number)

    # --- once more

    def restart(self) -> None:
        """See `Services.restart`."""
        self._close_listener()
        if self._process:
            self._process.retire(self._start_again)
        else:
            self._start_again()

    def _start_again(self) -> None:
        self._process = None
        self._awaited = self._told.first
        if self._command:
            self._reunion = _serving().ReconnectWatchdog(self._node.loop, self._kill, self._command.env)
            self._try(lambda: self._command)
        elif self._told.first:
            self._start_first()
        else:
            self._wait_for_knock()

    # --- the process

    def _output(self, kind: int, rank: int, data: bytes) -> None:
        if data:
            self._tell_started()
            if self._reunion:
                self._reunion.read(data)
        if self._untold is None:
            self._node.sink.output(kind, rank, data)
        else:
            self._untold.append(kind)

    def _exited(self, rank: int, status: ExitStatus) -> None:
        for wait in filter(None, (self._wait, self._reunion)):
            wait.cancel()
        if self._guessed and status.code != NO_MINDSPORE:  # whoever needs one will knock, and hear what is wrong
            status, self._error = ExitStatus(0), None
        if status.code == NO_MINDSPORE and self._command.searches:
            if self._known:  # nobody else would start it
                what = f"the MindSpore scheduler was not started: {self._command.path} has no MindSpore"
                self._error = LaunchError(what, todo="install it there, or name another host with --scheduler")
            elif self._untold is not None:
                assert self._process
                self._process.retire(self._without_mindspore)
                return
            else:
                status = ExitStatus(0)
        self._tell_started()
        if status.code == 0 and not self._ending and self._told.port:
            self._wait_for_knock()
            self._tell_serves()
        if self._error:
            self._node.sink.not_started(rank, self._error)
        else:
            self._node.sink.exited(rank, status)

    def _without_mindspore(self) -> None:
        """The interpreter of the ranks has none: should one of them knock after all, it will tell more."""
        self._process = self._command = self._untold = None
        if not self._ending:
            self._wait_for_knock()
            self._tell_serves()


def _insist(process: RankProcess) -> None:
    process.hurry(at_once=True)
    process.signal(signal.SIGKILL)


def _serving() -> Any:
    """The part, which is here by now."""
    module = on_demand.get("agent.services.service_program")
    assert module
    return module
