"""Starts agents, at most `LinkPolicy.fanout` at a time, and keeps their connections by the names of their nodes.

A host that fails does not end the wait for the others, so one message names them all.  Connections that were made
early, to learn a host's cores or its topology, are kept; those of nodes that get no ranks are closed.  In a dry run
nothing is started, and every host is assumed to be like this one, as mpirun does.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, LaunchError, LinkError, UnreachedError, counted, one_line
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.launcher.agents.connection import AgentConnection, close_all
from mslaunch.protocol import frames
from mslaunch.transport.base import HandedOver, OpenContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import LinkPolicy
    from mslaunch.launcher.agents.host_retries import HostRetries
    from mslaunch.launcher.agents.leases import Leases
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.runtime.loop import Loop
    from mslaunch.transport.base import Link

SLOW = 1.0  #: seconds after which progress is shown
_PROGRESS = 0.2  # seconds between reports of progress
_LOOK_AGAIN = 0.25  # seconds between looks at the links' clocks, or longer: many links may have 5 % of the time


class OpenLinks:
    """The open links of a launch, and the lease on each, which `leases` looks after."""

    def __init__(self, loop: Loop, policy: LinkPolicy) -> None:
        self.loop = loop
        self._lease = policy.pace, policy.lease
        self._terms = frames.encode(frames.LEASE, payload=b"%g %g" % self._lease)
        self.topologies: dict[bytes, Topology] = {}  #: by their frames: hosts that are alike have one
        self.handed_over = HandedOver({}, set())
        self.made: list[AgentConnection] = []  #: all that have not been asked for `lost` after their end
        self._open: list[AgentConnection] = []
        self._due = 0.0  # the first heartbeat; 0: nobody was connected yet
        self._leases: Leases | None = None

    def add(self, connection: AgentConnection) -> None:
        """Its agent learns what its lease is."""
        connection.send(self._terms)
        self._open.append(connection)
        self.made.append(connection)
        if self._leases:
            connection.share(self._leases.lock)
        heartbeat, lease = self._lease
        if lease and not self._due:
            self._due = self.loop.now() + heartbeat
            self.loop.after(heartbeat, lambda: self._keep().beat())

    def suspend(self) -> None:
        """Stop this process until it is continued, and lose no lease by that."""
        self._keep().suspend()

    def close(self) -> None:
        """The launch is over."""
        if self._leases:
            self._leases.close()

    def _keep(self) -> Leases:
        if not self._leases:
            from mslaunch.launcher.agents.leases import Leases

            self._leases = Leases(self.loop, self._lease, self._open, self._terms, self._due)
        return self._leases


class AgentPool:
    """Connections by node name."""

    def __init__(
        self,
        loop: Loop,
        policy: LinkPolicy,
        environ: Mapping[str, str],
        console: Console,
        wait: Callable[[Callable[[], bool]], None],
        dry: bool = False,
        describe_all: bool = False,
        progress: Callable[[int, int, bool, str, frozenset[str]], None] = lambda *progress: None,
        *,
        links: OpenLinks | None = None,
    ) -> None:
        """`wait(until)` runs the loop until `until()` is true; what it raises goes through.  `dry`: start no agent.

        `describe_all`: every agent is asked for its topology when it is started, for it cannot be asked later, and
        ranks may get their places only then.

        `progress` gets, after a second, how many of how many hosts have answered, what is told of those that are tried
        again, and who has not answered; at the end once more, with True.  `links`: those of the launch.
        """
        self._start = partial(ConnectPhase, links or OpenLinks(loop, policy), environ, console.info)
        self._policy = policy
        self._console = console
        self._wait = wait
        self._dry = dry
        self._describe_all = describe_all
        self._progress = progress
        self._connected: dict[str, AgentConnection] = {}
        self._late: list[ConnectPhase] = []  # while ranks run
        self._stuck: list[str] = []  # hosts whose agents would not end

    def cores(self, nodes: Sequence[Node], hwthreads: bool) -> dict[str, int]:
        """How many cores each node has, or hardware threads, by name."""
        if self._dry:
            from mslaunch.host.usable_cpus import cores_here

            return dict.fromkeys((node.name for node in nodes), cores_here(hwthreads))
        hellos = [(connection.node.name, connection.hello) for connection in self._connect(nodes, topologies=True)]
        return {name: hello.cpus if hwthreads else hello.cores for name, hello in hellos if hello}

    def topologies(self, nodes: Sequence[Node]) -> dict[str, Topology]:
        """What the cpus of each node share, by name."""
        if self._dry:
            from mslaunch.host.read_topology import read_topology
            from mslaunch.host.usable_cpus import usable_cpus

            return dict.fromkeys((node.name for node in nodes), read_topology(usable_cpus()))
        connections = self._connect(nodes, topologies=True)
        return {connection.node.name: connection.topology for connection in connections if connection.topology}

    def require(self, nodes: Sequence[Node]) -> list[AgentConnection]:
        """A connection to each of these nodes, in their order; the others are closed."""
        connections = self._connect(nodes)
        early = partial(LaunchError, "the agent ended before the ranks were started", code=EXIT_LOST)
        lost = {at.node.name: at.error or early(where=at.node.name) for at in connections if at.ended}
        if lost:
            raise UnreachedError(lost, len(nodes))
        names = {node.name for node in nodes}
        close_all([self._connected.pop(name) for name in list(self._connected) if name not in names])
        for connection in connections:
            self._log_hello(connection)
        return connections

    def probe(self, nodes: Sequence[Node], seconds: float) -> None:
        """Connect to hosts that may have gone, for so many seconds at most; raises `UnreachedError`."""
        self._connect(nodes, seconds=seconds)

    def call(self, nodes: Sequence[Node], done: Callable[[list[AgentConnection], list[LaunchError]], None]) -> None:
        """Connect to more nodes while ranks run, without waiting.  May raise `LaunchError`.

        `done` gets the connections that are READY, and why there are no others.
        """

        def finished(phase: ConnectPhase) -> None:
            reached = phase.reached
            for connection in reached:
                self._log_hello(connection)
            for connection in set(phase.connections) - set(reached):
                connection.close()
            done(reached, sorted(phase.failed.values(), key=lambda error: error.where))

        self._late.append(self._start(self._policy, nodes, done=finished))

    def _log_hello(self, agent: AgentConnection) -> None:
        if agent.hello:
            host, pid, cpus, cores, python = agent.hello[:5]
            has = counted(cpus, "cpu") if cores == cpus else f"{counted(cores, 'core')}, {counted(cpus, 'cpu')}"
            self._console.verbose(f"{agent.node.name}: agent {pid} on {one_line(f'{host}, Python {python}')}, {has}")

    def disconnect_all(self) -> None:
        """Close all; nodes that are needed again get new agents."""
        self._stuck += close_all(list(self._connected.values()))
        self._connected.clear()

    def close(self) -> list[str]:
        """Close all; returns the hosts whose agents would not end."""
        for phase in self._late:
            phase.stop()
        late = [connection for phase in self._late for connection in phase.connections]
        stuck = [*self._stuck, *close_all([*self._connected.values(), *late])]
        self._late, self._stuck = [], []
        self._connected.clear()
        return stuck

    def _connect(
        self, nodes: Sequence[Node], topologies: bool = False, seconds: float | None = None
    ) -> list[AgentConnection]:
        """Connections that are READY; those that could be made are kept, even if others could not.

        All nodes without a connection go to the opener in one call.
        """
        missing = [node for node in nodes if node.name not in self._connected]
        if missing:
            policy = self._policy if seconds is None else self._policy._replace(timeout=seconds, wait=0.0)
            phase = self._start(policy, missing, topologies or self._describe_all, self._progress)
            try:
                self._wait(lambda: not phase.waiting)
            except LaunchError:
                close_all(phase.connections)
                raise
            finally:
                phase.close()
            for connection in phase.reached:
                connection.detach()
                self._connected[connection.node.name] = connection
            if phase.failed:
                raise UnreachedError(phase.failed, len(missing))
        return [self._connected[node.name] for node in nodes]


class ConnectPhase:
    """Connections on their way to READY, by the name of their node."""

    def __init__(
        self,
        links: OpenLinks,
        environ: Mapping[str, str],
        notice: Callable[[str], None],
        policy: LinkPolicy,
        nodes: Sequence[Node],
        describe: bool = False,
        progress: Callable[[int, int, bool, str, frozenset[str]], None] | None = None,
        done: Callable[[ConnectPhase], None] | None = None,
    ) -> None:
        """`describe`: agents are asked for their topologies.  `progress`: see `AgentPool`.

        `done` is called, later, once nobody is waited for; with it, ranks run already, and no agent is forked.
        """
        self.waiting = {node.name for node in nodes}
        self.failed: dict[str, LaunchError] = {}
        self._loop = loop = links.loop
        self._nodes = nodes
        self._seconds = policy.timeout
        self._notice = notice
        self._links = links
        self._notices: list[str] = []  # by threads of transports; the console is the loop's
        self._closers: list[Callable[[], None]] = []  # of what openers hold while they wait for agents
        self._describe = describe
        self._done = done
        self._progress = progress
        self._shown = False
        self._connections: dict[str, AgentConnection] = {}
        self._queue: list[AgentConnection] = []  # from `_turn` on they wait for their turn, if they are here, too:
        self._queued: set[AgentConnection] = set()
        self._turn = 0
        self._free = max(1, policy.fanout)
        self._began = loop.now()
        self._closed = False
        self._retries: HostRetries | None = None  # once a host was tried in vain
        self._limit = loop.after(self._seconds + 0.5, self._check_clocks)
        self._progress_timer = loop.after(SLOW, self._show_progress)
        report = (self._notices.append, self._opened, self._not_opened)
        self._context = OpenContext(policy, environ, *report, loop, self._closers, done is None, links.handed_over)
        try:
            _open_links(nodes, self._context)
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

    def _opened(self, link: Link) -> None:
        if self._closed:
            link.close()
            return
        connection = AgentConnection(self._loop, link, self._links.topologies if self._describe else None)
        self._links.add(connection)
        self._connections[link.node.name] = connection
        connection.attach(partial(self._on_end, link.node), on_ready=partial(self._settle, link.node))
        self._queue.append(connection)
        self._queued.add(connection)
        self._begin_next()

    def _begin_next(self) -> None:
        while self._free and self._queued:
            connection = self._queue[self._turn]
            self._turn += 1
            if connection in self._queued:
                self._queued.discard(connection)
                self._free -= 1
                connection.begin()

    def _end_turn(self, connection: AgentConnection | None) -> None:
        """Another may have its turn; one that has answered before its own needs none."""
        if connection in self._queued:
            self._queued.discard(connection)
        elif connection:
            self._free += 1
        self._begin_next()

    def _on_end(self, node: Node, error: LinkError | None) -> None:
        self._not_opened(node, error or LinkError("its agent ended at once", node.name))

    def _not_opened(self, node: Node, error: LinkError) -> None:
        """The first error says why; that the link has ended follows from it."""
        if error.passing and self._try_later(node, error):
            return
        self.failed.setdefault(node.name, error)
        self._settle(node)

    def _try_later(self, node: Node, error: LinkError) -> bool:
        """Whether a host that may only be starting is tried again."""
        if self._closed or node.name not in self.waiting:
            return False
        if not self._retries:
            from mslaunch.launcher.agents.host_retries import HostRetries

            self._retries = HostRetries(self._context, self._began, self._open_again)
        if not self._retries.schedule(node, error):
            return False
        connection = self._connections.pop(node.name, None)
        if connection:
            connection.close()
        self._end_turn(connection)
        return True

    def _open_again(self, node: Node) -> None:
        if self._closed or node.name not in self.waiting:
            return
        try:
            _open_links([node], self._context)
        except LaunchError as error:
            self.failed.setdefault(node.name, error)
            self._settle(node)

    def _settle(self, node: Node) -> None:
        if node.name not in self.waiting:
            return
        self.waiting.discard(node.name)
        self._end_turn(self._connections.get(node.name))
        if not self.waiting and self._done:
            self._loop.soon(self._finish)

    def _finish(self) -> None:
        if not self._closed:
            self.stop()
            assert self._done
            self._done(self)

    def _check_clocks(self) -> None:
        """Each link has its own: one may wait for its turn, or for a person who types a passphrase."""
        begin, seconds = self._loop.now(), self._seconds
        for node in [node for node in self._nodes if node.name in self.waiting]:
            connection = self._connections.get(node.name)
            if connection and not connection.link.overdue(seconds):
                continue
            tried = self._retries.last_try(node.name) if self._retries else self._began
            if not connection and self._loop.now() - tried <= seconds:
                continue
            todo = connection.todo() if connection else "--connect-timeout gives it more time"
            error = LinkError(f"no answer within {counted(seconds, 'second')}", node.name, todo)
            self._not_opened(node, (connection and connection.link.failure()) or error)
        self._limit = self._loop.after(max(_LOOK_AGAIN, 20 * (self._loop.now() - begin)), self._check_clocks)

    def _show_progress(self, over: bool = False) -> None:
        if self._progress and (self._shown or not over):
            self._shown = True
            again = self._retries.about(self.waiting) if self._retries else ""
            self._progress(len(self._nodes) - len(self.waiting), len(self._nodes), over, again, frozenset(self.waiting))
        if self._progress and not over:
            self._progress_timer = self._loop.after(_PROGRESS, self._show_progress)

    # --- the end

    def stop(self) -> None:
        """Wait no longer; a link that opens late is closed."""
        self._closed = True
        self._limit.cancel()
        self._progress_timer.cancel()
        self._show_progress(over=True)
        while self._closers:
            self._closers.pop()()
        while self._notices:
            self._notice(self._notices.pop(0))

    def close(self) -> None:
        """Wait no longer, and close what is not READY."""
        self.stop()
        close_all(list(set(self.connections).difference(self.reached)))


def _open_links(nodes: Sequence[Node], context: OpenContext) -> None:
    """Open a link to each node: by fork on this host, first, since that is safe only while there are no threads."""
    here, there = ([node for node in nodes if node.local is local] for local in (True, False))
    if here:
        from mslaunch.transport.fork import open_local

        open_local(here, context)
    if there:
        from mslaunch.transport.transport_table import open_remote

        open_remote(there, context)
