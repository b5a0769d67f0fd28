"""Leases: signs of life on all links of a launch, by one timer; a launcher that stops itself tells the agents first.

An agent that was not heard for a lease is given up, and so is one that has taken nothing for a lease of the much that
waits for it; one that is not read meanwhile cannot be heard.  A launcher that finds that it was itself stopped, or
busy, first reads what has come.  While its loop is blocked, as by a write to a log on a network file system that hangs,
a thread speaks in its place: a process that is stopped has no thread that runs.

This is imported at the first heartbeat, which many launches do not live to see.
"""

from __future__ import annotations

import os

from mslaunch.errors import LinkError
from mslaunch.faststd import TYPE_CHECKING, partial, signal
from mslaunch.launcher.agents.connection import MOST
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from threading import Thread

    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.runtime.loop import Loop, Timer

BUSY_LEASES = 4  #: for an agent that starts a process: a file system may have to be waited for
_BLOCKED_SECONDS = 300.0  # that the loop of this process may wait for one
_ANSWER_SECONDS = 1.0  # until agents have said that they do not expect to hear of us
_ALIVE = frames.encode(frames.LEASE)
_SUSPEND = frames.encode(frames.LEASE, payload=b"0 0")


class Leases:
    """The leases of a launch."""

    def __init__(
        self, loop: Loop, lease: tuple[float, float], links: list[AgentConnection], terms: bytes, due: float
    ) -> None:
        """`lease`: heartbeat and lease in seconds, which `terms` tells an agent; `due`: when the first `beat` is.

        Those of `links` that are closed are removed.
        """
        self._loop = loop
        self._heartbeat, self._lease = lease
        self._links = links
        self._terms = terms
        self._due = due
        from threading import Event, Lock

        self._over = Event()
        self.lock = Lock()  #: for `AgentConnection.share`
        for connection in links:
            connection.share(self.lock)
        self._thread: Thread | None = None
        self._unanswered: set[AgentConnection] = set()
        self._limit: Timer | None = None

    # --- signs of life

    def beat(self) -> None:
        """Look who was heard, and let all hear of us."""
        now, heartbeat = self._loop.now(), self._heartbeat
        late = now - self._due > heartbeat
        if not self._thread:
            from threading import Thread

            self._thread = Thread(target=self._stand_in, daemon=True, name="signs of life")
            self._thread.start()
        last, spoken = now - self._lease, now - heartbeat / 2
        self._links[:] = [connection for connection in self._links if connection.open]  # one step for the thread
        for connection in self._links.copy() if not self._limit else ():
            if not connection.hello:
                continue
            if connection.behind:
                connection.heard = now
            if late:
                connection.heard = connection.took = now
                connection.say(_ALIVE)
            elif connection.heard < last and not self._may_be_busy(connection, connection.heard):
                connection.lose(_silent(connection, now - connection.heard))
            elif _much_waits(connection, last) and not self._may_be_busy(connection, connection.took):
                from mslaunch.launcher.agents.diagnose_start import unread

                connection.lose(unread(connection.pending, now - connection.took, connection.node.name))
            elif connection.spoke < spoken:
                connection.spoke = now
                connection.say(_ALIVE)
        self._due = now + heartbeat
        self._loop.after(heartbeat, self.beat)

    def _may_be_busy(self, connection: AgentConnection, since: float) -> bool:
        return connection.busy and self._loop.now() - since < BUSY_LEASES * self._lease

    def _stand_in(self) -> None:
        """In a thread: speak when `beat` is late."""
        while not self._over.wait(self._heartbeat):
            late = self._loop.now() - self._due
            if self._heartbeat / 4 < late < _BLOCKED_SECONDS and not self._limit:
                for connection in self._links.copy():
                    if connection.hello:
                        connection.say(_ALIVE)

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread:
            self._thread.join()

    # --- Ctrl-Z

    def suspend(self) -> None:
        """Tell the agents that silence means nothing for now; once they have answered, stop this process."""
        if self._limit:
            return
        self._unanswered = {found for found in self._links if found.open and found.hello}
        for connection in self._links:
            connection.on_suspended = partial(self._answered, connection)
            connection.send(_SUSPEND)
        self._limit = self._loop.after(_ANSWER_SECONDS if self._unanswered else 0.0, self._stop)

    def _answered(self, connection: AgentConnection) -> None:
        self._unanswered.discard(connection)
        if self._limit and not self._unanswered:
            self._limit.cancel()
            self._limit = self._loop.after(0.0, self._stop)

    def _stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        now = self._loop.now()
        self._due = now + self._heartbeat
        self._limit = None
        for connection in self._links:
            connection.heard = connection.took = now
            connection.send(self._terms)


def _much_waits(connection: AgentConnection, since: float) -> bool:
    """Whether too much is on its way to a host that has taken none of it for a lease."""
    return connection.pending > MOST and connection.took < since


def _silent(connection: AgentConnection, seconds: float) -> LinkError:
    host, hello = connection.node.name, connection.hello
    agent = f"its agent (process {hello.pid} there)" if hello else "its agent"
    what = f"nothing was heard from {host} for {seconds:.3g} s: is it up, is the network, and is {agent} stopped?"
    return LinkError(what, host, "--lease S allows for longer silence, --lease 0 for any.")
