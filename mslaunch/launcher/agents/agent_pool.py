"""The company of a launch: the peers it has met so far, and what it asks them before ranks have their places.

It keeps links that were made early (to learn a host's cores or its machine) for the ranks, and lets those go that get
no rank; one that breaks meanwhile is a refusal.  Hosts on which ranks spawn others join late.  It knows
neither maps nor plans.  The surprising thing is the dry run: where nothing may be started nobody is called, and every
host is taken to be like this one, as mpirun does.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.start_agents import UnreachedError, begin_connect, close_all, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.hosts import Node
    from mslaunch.datamodel.request import LinkPolicy
    from mslaunch.datamodel.topology import Topology
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.stdio.console import Console
    from mslaunch.runtime.loop import Loop


class AgentPool:
    """Peers by node name, met when they are needed first."""

    def __init__(
        self,
        loop: Loop,
        policy: LinkPolicy,
        environ: Mapping[str, str],
        console: Console,
        wait: Callable[[Callable[[], bool]], None],
        dry: bool,
        thorough: bool = False,
    ) -> None:
        """`wait` is that of `connect`; `dry`: nobody is called.

        `thorough`: whoever is called is asked for its topology at once, since ranks may get their places only after it
        was met; it cannot be asked later.
        """
        self._loop = loop
        self._policy = policy
        self._environ = environ
        self._console = console
        self._wait = wait
        self._dry = dry
        self._thorough = thorough
        self._met: dict[str, AgentConnection] = {}
        self._late: list[AgentConnection] = []  # called while ranks run, reached or not
        self._stuck: list[str] = []  # hosts of those that would not go

    def cores(self, nodes: Sequence[Node], hwthreads: bool) -> dict[str, int]:
        """How many cores each node has, or hardware threads, by name."""
        if self._dry:
            from mslaunch.host.cpus import cores_here

            return dict.fromkeys((node.name for node in nodes), cores_here(hwthreads))
        hellos = [(peer.node.name, peer.hello) for peer in self._connect(nodes, topologies=True)]
        return {name: hello.cpus if hwthreads else hello.cores for name, hello in hellos if hello}

    def topologies(self, nodes: Sequence[Node]) -> dict[str, Topology]:
        """What the cpus of each node share, by name."""
        if self._dry:
            from mslaunch.host.cpus import usable_cpus
            from mslaunch.host.read_topology import read_topology

            return dict.fromkeys((node.name for node in nodes), read_topology(usable_cpus()))
        peers = self._connect(nodes, topologies=True)
        return {peer.node.name: peer.topology for peer in peers if peer.topology}

    def require(self, nodes: Sequence[Node]) -> list[AgentConnection]:
        """A peer for each of these nodes, in their order; the others are let go."""
        peers = self._connect(nodes, topologies=False)
        lost = {peer.node.name: peer.error or _ended(peer.node.name) for peer in peers if peer.ended}
        if lost:
            raise UnreachedError(lost, len(nodes))
        names = {node.name for node in nodes}
        close_all([self._met.pop(name) for name in list(self._met) if name not in names])
        for peer in peers:
            self._log_hello(peer)
        return peers

    def probe(self, nodes: Sequence[Node], seconds: float) -> None:
        """Call hosts that may have gone, for so many seconds at most; raises `UnreachedError`."""
        self._connect(nodes, topologies=False, seconds=seconds)

    def call(self, nodes: Sequence[Node], done: Callable[[list[AgentConnection], list[LaunchError]], None]) -> None:
        """Call more nodes, without waiting, while the job runs; see `begin_connect`.  May raise `LaunchError`."""

        def called(peers: list[AgentConnection], errors: list[LaunchError]) -> None:
            for peer in peers:
                self._log_hello(peer)
            for peer in set(connecting.peers) - set(peers):
                peer.close()
            done(peers, errors)

        connecting = begin_connect(self._loop, nodes, self._policy, self._environ, self._console.info, called)
        self._late += connecting.peers

    def _log_hello(self, peer: AgentConnection) -> None:
        if peer.hello:
            host, pid, cpus, cores, python = peer.hello[:5]
            has = f"{cores} cores, {cpus} cpus" if cores != cpus else f"{cpus} cpus"
            self._console.verbose(f"{peer.node.name}: agent {pid} on {host}, Python {python}, {has}")

    def disconnect_all(self) -> None:
        """Let all go; who is needed is called anew."""
        self._stuck += close_all(list(self._met.values()))
        self._met.clear()

    def close(self) -> list[str]:
        """Close all links; returns the hosts of those that would not go."""
        return [*self._stuck, *close_all([*self._met.values(), *self._late])]

    def _connect(self, nodes: Sequence[Node], topologies: bool, seconds: float | None = None) -> list[AgentConnection]:
        """Those that are reached stay, even if others are not."""
        missing = [node for node in nodes if node.name not in self._met]
        if missing:
            policy = self._policy if seconds is None else self._policy._replace(timeout=seconds)
            console, environ, all_of_it = self._console, self._environ, topologies or self._thorough
            try:
                self._keep(
                    connect(self._loop, missing, policy, environ, console.info, console.progress, self._wait, all_of_it)
                )
            except UnreachedError as error:
                self._keep(error.reached)
                raise
        return [self._met[node.name] for node in nodes]

    def _keep(self, peers: Sequence[AgentConnection]) -> None:
        for peer in peers:
            peer.detach()
            self._met[peer.node.name] = peer


def _ended(host: str) -> LaunchError:
    return LaunchError("the agent ended before the ranks were started", host, code=EXIT_LOST)
