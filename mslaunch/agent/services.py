"""A service: a process of the job that is no rank, started when a rank first knocks at its port.

Until then it is a listening socket, so a job that never asks pays for nothing else.  At the first knock the port is
handed over: the listener closes, the service binds it, the rank tries again.  What a service needs to know of its
framework is in a module of its own (`agent.mindspore`).  The surprising thing: a service that ended well while ranks
still run gets its listener back, for the next program of a script that runs two.
"""

from __future__ import annotations

import os

from mslaunch.agent.network import Listener
from mslaunch.agent.ranks import Rank
from mslaunch.lean import TYPE_CHECKING, signal
from mslaunch.model import SERVICE, ServicePlan
from mslaunch.wire.frames import STDERR

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mslaunch.agent.ranks import Sink
    from mslaunch.wire.loop import Loop

    class ServiceSink(Sink, Protocol):
        """Who hears of services: the agent."""

        def started(self, rank: int, pid: int) -> None:
            """It runs."""


KILL_AFTER = 1.0  #: seconds from TERM to KILL, once nobody needs the service any more


class Service:
    """One service of the node."""

    def __init__(
        self,
        plan: ServicePlan,
        loop: Loop,
        sink: ServiceSink,
        listener: Listener | None,
        ranks: Callable[[], list[int]],
    ) -> None:
        self._plan = plan
        self._loop = loop
        self._sink = sink
        self._listener = listener
        self._ranks = ranks
        self._process: Rank | None = None
        self._ending = False
        if listener:
            loop.reader(listener.fileno(), self._knocked)

    @property
    def running(self) -> bool:
        """True while its process, or what it still has to say, is there."""
        return self._process is not None and not self._process.over

    def end(self, at_once: bool) -> None:
        """The job is ending.  While ranks may still be using it (`at_once` false) only the port is given back."""
        self._ending = True
        self._close_listener()
        if at_once and self._process and self._process.running:
            process = self._process
            process.hurry()
            process.signal(signal.SIGTERM)
            self._loop.after(KILL_AFTER, lambda: process.signal(signal.SIGKILL))

    def _close_listener(self) -> None:
        if self._listener:
            self._loop.reader(self._listener.fileno(), None)
            self._listener.close()
            self._listener = None

    def _knocked(self) -> None:
        """Hand over the port: first give it up, and only then look who asks.

        Closing resets those who have knocked, and they try again within half a second; but a worker that has had
        the time to send its registration waits 15 s for an answer that nobody will give (docs/design.md).
        """
        from mslaunch.agent import mindspore

        self._close_listener()
        interpreter = mindspore.find_interpreter(self._ranks())
        if interpreter is None:  # a rank of another host was first, or not MindSpore at all
            self._listen()
            return
        self._start(mindspore.scheduler_command(interpreter), mindspore.scheduler_env(interpreter.env, self._plan.env))

    def _listen(self) -> None:
        try:
            self._listener = Listener(self._plan.port)
        except OSError as error:
            text = f"mslaunch: port {self._plan.port} of the scheduler was taken meanwhile: {error.strerror}\n"
            self._sink.output(STDERR, SERVICE, text.encode())
            return
        self._loop.reader(self._listener.fileno(), self._knocked)

    def _start(self, command: list[str], env: dict[str, str]) -> None:
        from mslaunch.agent.fds import Room, open_fds

        null = os.open("/dev/null", os.O_RDONLY)
        process = Rank(SERVICE, self._loop, self)
        try:
            process.start(command[0], command, env, open_fds(null, False, False, False, 1), Room(0, null))
        except OSError as error:
            self._sink.output(STDERR, SERVICE, f"mslaunch: {command[0]}: {error.strerror}\n".encode())
            self._sink.exited(SERVICE, 127, None)
            return
        finally:
            os.close(null)
        self._process = process
        process.watch(True)
        self._sink.started(SERVICE, process.pid)

    # --- the process, as a Sink

    def output(self, kind: int, rank: int, data: bytes) -> None:
        """See `ranks.Sink`."""
        self._sink.output(kind, SERVICE, data)

    def stdin_taken(self, rank: int, size: int) -> None:
        """See `ranks.Sink`: a service reads nothing."""

    def exited(self, rank: int, code: int | None, signum: int | None) -> None:
        """See `ranks.Sink`."""
        if code == 0 and not self._ending:
            self._listen()
        self._sink.exited(SERVICE, code, signum)
