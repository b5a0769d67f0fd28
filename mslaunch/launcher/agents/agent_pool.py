"""The agents of an attempt by the names of their nodes: started when they are needed first, and kept for the ranks.

Links that were made early, to learn a host's cores or its topology, are kept; those of nodes that get no ranks are
closed.  In a dry run nothing is started, and every host is taken to be like this one, as mpirun does.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.start_agents import ConnectPhase, UnreachedError, close_all, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import LinkPolicy
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.stdio.console import Console
    from mslaunch.runtime.loop import Loop


class AgentPool:
    """Connections by node name."""

    def __init__(
        self,
        loop: Loop,
        policy: LinkPolicy,
        environ: Mapping[str, str],
        console: Console,
        wait: Callable[[Callable[[], bool]], None],
        dry: bool,
        describe_all: bool = False,
        progress: Callable[[int, int, bool], None] = lambda answered, hosts, over: None,
    ) -> None:
        """`wait` is that of `connect`; `dry`: no agent is started.

        `describe_all`: every agent is asked for its topology when it is started, for it cannot be asked later, and
        ranks may get their places only then.

        `progress` gets, after a second, how many of how many hosts have answered; at the end once more, with True.
        """
        self._loop = loop
        self._policy = policy
        self._environ = environ
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
            from mslaunch.host.cpus import cores_here

            return dict.fromkeys((node.name for node in nodes), cores_here(hwthreads))
        hellos = [(connection.node.name, connection.hello) for connection in self._connect(nodes, topologies=True)]
        return {name: hello.cpus if hwthreads else hello.cores for name, hello in hellos if hello}

    def topologies(self, nodes: Sequence[Node]) -> dict[str, Topology]:
        """What the cpus of each node share, by name."""
        if self._dry:
            from mslaunch.host.cpus import usable_cpus
            from mslaunch.host.read_topology import read_topology

            return dict.fromkeys((node.name for node in nodes), read_topology(usable_cpus()))
        connections = self._connect(nodes, topologies=True)
        return {connection.node.name: connection.topology for connection in connections if connection.topology}

    def require(self, nodes: Sequence[Node]) -> list[AgentConnection]:
        """A connection to each of these nodes, in their order; the others are closed."""
        connections = self._connect(nodes, topologies=False)
        lost = {found.node.name: found.error or _ended(found.node.name) for found in connections if found.ended}
        if lost:
            raise UnreachedError(lost, len(nodes))
        names = {node.name for node in nodes}
        close_all([self._connected.pop(name) for name in list(self._connected) if name not in names])
        for connection in connections:
            self._log_hello(connection)
        return connections

    def probe(self, nodes: Sequence[Node], seconds: float) -> None:
        """Connect to hosts that may have gone, for so many seconds at most; raises `UnreachedError`."""
        self._connect(nodes, topologies=False, seconds=seconds)

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

        notice = self._console.info
        self._late.append(ConnectPhase(self._loop, nodes, self._policy, self._environ, notice, done=finished))

    def _log_hello(self, connection: AgentConnection) -> None:
        if connection.hello:
            host, pid, cpus, cores, python = connection.hello[:5]
            has = f"{cores} cores, {cpus} cpus" if cores != cpus else f"{cpus} cpus"
            self._console.verbose(f"{connection.node.name}: agent {pid} on {host}, Python {python}, {has}")

    def disconnect_all(self) -> None:
        """Close all; nodes that are needed again get new agents."""
        self._stuck += close_all(list(self._connected.values()))
        self._connected.clear()

    def close(self) -> list[str]:
        """Close all for good; returns the hosts whose agents would not end."""
        late = [connection for phase in self._late for connection in phase.connections]
        return [*self._stuck, *close_all([*self._connected.values(), *late])]

    def _connect(self, nodes: Sequence[Node], topologies: bool, seconds: float | None = None) -> list[AgentConnection]:
        """Connections that could be made are kept, even if others could not."""
        missing = [node for node in nodes if node.name not in self._connected]
        if missing:
            policy = self._policy if seconds is None else self._policy._replace(timeout=seconds)
            console, describe = self._console, topologies or self._describe_all
            args = (self._loop, missing, policy, self._environ, console.info, self._progress, self._wait, describe)
            try:
                self._keep(connect(*args))
            except UnreachedError as error:
                self._keep(error.reached)
                raise
        return [self._connected[node.name] for node in nodes]

    def _keep(self, connections: Sequence[AgentConnection]) -> None:
        for connection in connections:
            connection.detach()
            self._connected[connection.node.name] = connection


def _ended(host: str) -> LaunchError:
    return LaunchError("the agent ended before the ranks were started", host, code=EXIT_LOST)
