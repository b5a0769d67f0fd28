"""Starts an agent on each of some nodes: links are opened, until every agent has said HELLO or it is known why not.

A host that fails does not end the wait for the others, so one message names them all.  At most `LinkPolicy.fanout`
links are opened at a time.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError, LinkError
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.launcher.agents.connection import HELLO_CAME, AgentConnection
from mslaunch.transport.base import OpenContext
from mslaunch.transport.openers import open_links

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.request import LinkPolicy
    from mslaunch.runtime.loop import Loop
    from mslaunch.transport.base import Link

SLOW = 1.0  #: seconds after which progress is shown
_NO_AGENT = 0.1  #: seconds that a link has to go by itself if no agent ever answered
_LOOK_AGAIN = 0.25  # seconds between looks at the links' clocks


class UnreachedError(LaunchError):
    """Hosts could not be used; who catches it keeps or closes the connections to the others, `reached`."""

    def __init__(self, by_node: Mapping[str, LaunchError], hosts: int, reached: Sequence[AgentConnection] = ()) -> None:
        """`by_node` has an error for each, by the name of the node; `hosts`: how many were asked for."""
        self.by_node = dict(sorted(by_node.items(), key=lambda item: item[1].where))
        self.errors = list(self.by_node.values())
        first = self.errors[0]
        super().__init__(first.what, first.where, first.todo, first.code)
        self.hosts = hosts
        self.reached = reached


def connect(
    loop: Loop,
    nodes: Sequence[Node],
    policy: LinkPolicy,
    environ: Mapping[str, str],
    notice: Callable[[str], None],
    progress: Callable[[int, int, bool], None],
    wait: Callable[[Callable[[], bool]], None],
    topologies: bool = False,
) -> list[AgentConnection]:
    """Connections that are all READY, in the order of `nodes`; else raises `UnreachedError`, and closes the others.

    With `topologies` the agents also describe their hosts.  `progress`: see `AgentPool`.
    `wait(until)` runs the loop until `until()` is true; what it raises goes through, with all closed again.
    """
    phase = ConnectPhase(loop, nodes, policy, environ, notice, topologies)
    show = _Progress(loop, len(nodes), phase.waiting, progress)
    try:
        wait(lambda: not phase.waiting)
    except LaunchError:
        close_all(phase.connections)
        raise
    finally:
        show.close()
        phase.close()
    if phase.failed:
        raise UnreachedError(phase.failed, len(nodes), phase.reached)
    return phase.connections


class ConnectPhase:
    """Connections on their way to READY, by the name of their node."""

    def __init__(
        self,
        loop: Loop,
        nodes: Sequence[Node],
        policy: LinkPolicy,
        environ: Mapping[str, str],
        notice: Callable[[str], None],
        describe: bool = False,
        done: Callable[[ConnectPhase], None] | None = None,
    ) -> None:
        """`done` is called, later, once nobody is waited for; with it, ranks run already, and no agent is forked."""
        self.waiting = {node.name for node in nodes}
        self.failed: dict[str, LaunchError] = {}
        self._loop = loop
        self._nodes = nodes
        self._policy = policy
        self._notice = notice
        self._notices: list[str] = []  # by threads of transports; the console is the loop's
        self._describe = describe
        self._done = done
        self._connections: dict[str, AgentConnection] = {}
        self._queue: list[AgentConnection] = []
        self._free = max(1, policy.fanout)
        self._began = loop.now()
        self._closed = False
        self._limit = loop.after(policy.timeout + 0.5, self._check_clocks)
        context = OpenContext(policy, environ, self._notices.append, self._opened, self._not_opened, fork=done is None)
        try:
            open_links(nodes, context)
        except LaunchError:
            self.close()
            raise

    @property
    def connections(self) -> list[AgentConnection]:
        """All that there are, in the order of the nodes."""
        return [self._connections[node.name] for node in self._nodes if node.name in self._connections]

    @property
    def reached(self) -> list[AgentConnection]:
        """Those that are READY."""
        out = {*self.failed, *self.waiting}
        return [connection for connection in self.connections if connection.node.name not in out]

    # --- events

    def _opened(self, link: Link) -> None:
        if self._closed:
            link.close()
            return
        connection = AgentConnection(self._loop, link, self._describe)
        self._connections[link.node.name] = connection
        connection.attach(partial(self._on_end, link.node), on_ready=partial(self._settle, link.node))
        self._queue.append(connection)
        self._begin_next()

    def _begin_next(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            self._queue.pop(0).begin()

    def _on_end(self, node: Node, error: LinkError | None) -> None:
        self._not_opened(node, error or LinkError("its agent ended at once", node.name))

    def _not_opened(self, node: Node, error: LinkError) -> None:
        """The first error says why; that the link has ended follows from it."""
        self.failed.setdefault(node.name, error)
        self._settle(node)

    def _settle(self, node: Node) -> None:
        if node.name not in self.waiting:
            return
        self.waiting.discard(node.name)
        connection = self._connections.get(node.name)
        if connection in self._queue:  # it has answered before its turn, and needs none
            self._queue.remove(connection)
        elif connection:
            self._free += 1
        self._begin_next()
        if not self.waiting and self._done:
            self._loop.soon(self._finish)

    def _finish(self) -> None:
        self._stop()
        assert self._done
        self._done(self)

    def _check_clocks(self) -> None:
        """Each link has its own: one may wait for its turn, or for a person who types a passphrase."""
        seconds = self._policy.timeout
        for node in [node for node in self._nodes if node.name in self.waiting]:
            connection = self._connections.get(node.name)
            if connection and not connection.link.overdue(seconds):
                continue
            if not connection and self._loop.now() - self._began <= seconds:
                continue
            todo = "does its login shell wait for input?  --connect-timeout gives it more time"
            spoken = connection is not None and connection.phase >= HELLO_CAME
            error = LinkError(f"no answer within {seconds:g} seconds", node.name, "" if spoken else todo)
            self._not_opened(node, (connection and connection.link.failure()) or error)
        self._limit = self._loop.after(_LOOK_AGAIN, self._check_clocks)

    # --- the end

    def _stop(self) -> None:
        self._limit.cancel()
        while self._notices:
            self._notice(self._notices.pop(0))

    def close(self) -> None:
        """Wait no longer, and close what is not READY."""
        self._closed = True
        self._stop()
        reached = self.reached
        close_all([connection for connection in self.connections if connection not in reached])


class _Progress:
    """Reports how many hosts have answered, once it takes longer than a second."""

    def __init__(
        self, loop: Loop, total: int, waiting: Collection[str], show: Callable[[int, int, bool], None]
    ) -> None:
        self._loop = loop
        self._total = total
        self._waiting = waiting
        self._show = show
        self._shown = False
        self._timer = loop.after(SLOW, self._tick)

    def _tick(self) -> None:
        self._shown = True
        self._show(self._total - len(self._waiting), self._total, False)
        self._timer = self._loop.after(0.2, self._tick)

    def close(self) -> None:
        self._timer.cancel()
        if self._shown:
            self._show(self._total - len(self._waiting), self._total, True)


def close_all(connections: Sequence[AgentConnection], seconds: float = 5.0) -> list[str]:
    """Close all, and wait for what carried them; returns the hosts of those that would not go."""
    for connection in connections:
        connection.close()
    stuck = []
    import time

    deadline = time.monotonic() + seconds
    for connection in connections:
        patience = max(0.0, deadline - time.monotonic()) if connection.hello else _NO_AGENT
        if not connection.link.wait(patience):
            connection.link.kill()
            if connection.hello:
                stuck.append(connection.node.name)
    return stuck
