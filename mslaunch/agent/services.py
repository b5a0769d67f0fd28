"""Services: processes of the job that are no ranks, started before them, or when a rank first knocks at their port.

Until that knock a service is a listening socket, so a job that never asks pays for nothing else.  Then its port is
handed over: the listener closes, the service binds it, the rank tries again.  What they run, and whether they listen,
is known by modules that travel when one is to be started (`serving`, `listening`).  The surprising thing: a service
that ended well while ranks still run gets its listener back, for the next program of a script that runs two.
"""

from __future__ import annotations

import os

from mslaunch.agent import parts
from mslaunch.agent.cpus import bound
from mslaunch.agent.fds import Room, open_fds
from mslaunch.agent.network import Listener
from mslaunch.agent.program import check_wdir, explain_spawn
from mslaunch.agent.ranks import Rank
from mslaunch.errors import LaunchError
from mslaunch.lean import TYPE_CHECKING, signal
from mslaunch.wire.frames import STDERR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from mslaunch.agent.files import Session
    from mslaunch.agent.ranks import Sink
    from mslaunch.model import NodePlan, ServicePlan
    from mslaunch.wire.loop import Loop

    class ServiceSink(Sink, Protocol):
        """Who hears of services: the agent."""

        def started(self, rank: int, pid: int) -> None:
            """It runs."""

        def serves(self, number: int) -> None:
            """It was to be started before the ranks, and need not be waited for any longer."""

        def not_started(self, rank: int, error: LaunchError) -> None:
            """It does not run, and will not."""


KILL_AFTER = 1.0  #: seconds from TERM to KILL, once nobody needs the service any more
NO_MINDSPORE = 93  #: exit code of a scheduler that has found none; not told to anybody


class Services:
    """Those of a node."""

    def __init__(
        self,
        loop: Loop,
        sink: ServiceSink,
        environ: Mapping[str, str],
        session: Callable[[], Session],
        need: Callable[[str, Callable[[], None]], None],
        ranks: Callable[[], list[int] | None],
    ) -> None:
        """`need` goes on when a part is here; `ranks()` are the process ids of the node's ranks, if it ever had any."""
        self.loop = loop
        self.sink = sink
        self.environ = environ
        self.session = session
        self.need = need
        self.ranks = ranks
        self.ending = False
        self._all: dict[int, Service] = {}

    @property
    def running(self) -> bool:
        """True while one of them runs, or has something to say."""
        return any(service.running for service in self._all.values())

    def add(self, plan: NodePlan, held: dict[int, Listener]) -> None:
        """Those of a plan; they take their ports out of `held`."""
        for told in plan.services:
            if told.number not in self._all:
                self._all[told.number] = Service(self, plan, told, held.pop(told.port, None))

    def restart(self, number: int) -> None:
        """One that has ended is started again, once nothing is left of its streams."""
        self._all[number].restart()

    def watch(self, on: bool) -> None:
        """Hear what they print, or let them wait."""
        for service in self._all.values():
            service.watch(on)

    def end_idle(self) -> None:
        """Our ranks have ended; those that other launchers have started may still be connected."""
        for service in self._all.values():
            service.end_idle()

    def end(self, at_once: bool) -> None:
        """The job is ending.  While ranks may still be using them (`at_once` false) only ports are given back."""
        self.ending = True
        for service in self._all.values():
            service.end(at_once)


class Service:
    """One of them, and its process's `Sink`."""

    def __init__(self, node: Services, plan: NodePlan, told: ServicePlan, listener: Listener | None) -> None:
        self._node = node
        self._plan = plan
        self._told = told
        self._listener = listener
        self._command: Any = None  # a serving.Command: what it ran last
        self._process: Rank | None = None
        self._untold: list[int] | None = None  # streams that have ended of a process of which nothing was told yet
        self._awaited = told.first  # SERVES is still to be said
        self._wait: Any = None  # a listening.Wait
        self._error: LaunchError | None = None  # why its process had to be ended
        self._watched = True
        if told.first:
            node.need("serving", self._start_first)
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
        self._close_listener()
        if at_once and self._process and self._process.running:
            process = self._process
            process.hurry()
            process.signal(signal.SIGTERM)
            self._node.loop.after(KILL_AFTER, lambda: process.signal(signal.SIGKILL))

    def end_idle(self) -> None:
        """See `Services.end_idle`."""
        if self._process and self._process.running and self._told.port:
            if self._wait:
                self._wait.cancel()
            self._wait = _serving().Idle(self._node.loop, self._told.port, lambda: self.end(True))
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
            self._listener.close()
            self._listener = None

    def _knocked(self) -> None:
        """Hand over the port: first give it up, and only then look who asks.

        Closing resets those who have knocked, and they try again within half a second; but a worker that has had
        the time to send its registration waits 15 s for an answer that nobody will give (docs/design.md).
        """
        self._close_listener()
        self._node.need("serving", self._start_for_knock)

    # --- its start

    def _start_first(self) -> None:
        if not self._try(lambda: self._chooser().before_ranks(self._told)):
            self._wait_for_knock()  # nobody can say yet what it is to run
            self._tell_serves()

    def _start_for_knock(self) -> None:
        if not self._try(lambda: self._chooser().after_knock(self._told, self._node.ranks())):
            self._wait_for_knock()  # a rank of another host was first, or not MindSpore at all

    def _chooser(self) -> Any:
        return _serving().Chooser(self._plan, self._node.environ, self._node.session)

    def _try(self, find: Callable[[], Any]) -> bool:
        """Start what is found, or say why it cannot be; False if there is nothing yet."""
        try:
            if self._node.ending:
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
        process = Rank(number, self._node.loop, self)
        try:
            check_wdir(command.wdir)
            os.chdir(command.wdir)
            with bound(self._told.cpus):
                fds = open_fds(null, False, False, False, 1)
                process.start(command.path, command.argv, command.env, fds, Room(0, null))
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
        elif self._awaited or self._command.searches:
            self._wait = _serving().Wait(self._node.loop, self._told.port, pid, self._heard_of_port)

    def _heard_of_port(self, error: LaunchError | None) -> None:
        if error:
            self._error = error
            assert self._process
            self._process.signal(signal.SIGKILL)
        else:
            self._tell_started()
            self._tell_serves()

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
            self._try(lambda: self._command)
        elif self._told.first:
            self._start_first()
        else:
            self._wait_for_knock()

    # --- the process, as a Sink

    def output(self, kind: int, rank: int, data: bytes) -> None:
        """See `ranks.Sink`."""
        if data:
            self._tell_started()
        if self._untold is None:
            self._node.sink.output(kind, rank, data)
        else:
            self._untold.append(kind)

    def stdin_taken(self, rank: int, size: int) -> None:
        """See `ranks.Sink`: a service reads nothing."""

    def exited(self, rank: int, code: int | None, signum: int | None) -> None:
        """See `ranks.Sink`."""
        if self._wait:
            self._wait.cancel()
        if code == NO_MINDSPORE and self._command.searches:
            if not self._awaited:  # nobody else would start it
                what = f"the MindSpore scheduler was not started: {self._command.path} has no MindSpore"
                self._error = LaunchError(what, todo="install it there, or name another host with --scheduler")
            elif self._untold is not None:
                assert self._process
                self._process.retire(self._without_mindspore)
                return
            else:
                code = 0
        self._tell_started()
        if code == 0 and not self._node.ending and self._told.port:
            self._wait_for_knock()
            self._tell_serves()
        if self._error:
            self._node.sink.not_started(rank, self._error)
        else:
            self._node.sink.exited(rank, code, signum)

    def _without_mindspore(self) -> None:
        """The interpreter of the ranks has none: should one of them knock after all, it will tell more."""
        self._process = self._command = self._untold = None
        if not self._node.ending:
            self._wait_for_knock()
            self._tell_serves()


def _serving() -> Any:
    """The part, which is here by now."""
    module = parts.get("serving")
    assert module
    return module
