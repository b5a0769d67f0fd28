"""Connecting: a link to every node, until each agent has said HELLO or it is known why not.

At most `LinkPolicy.fanout` links are being opened at a time; a host that fails does not stop the wait for the others,
so one message names them all, and nothing is ever started on any host before all have answered.  While ranks run, for
those that they spawn, it does the same without waiting.  It knows the kinds of link and the HELLO frame, not the job.
The surprising thing: local links are opened first, since forking is safe only while no thread exists.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError, LinkError
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.launcher.agents.connection import AgentConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.hosts import Node
    from mslaunch.datamodel.request import LinkPolicy
    from mslaunch.runtime.loop import Loop
    from mslaunch.transport.base import Link

SLOW = 1.0  #: seconds after which a person wants to know how far it has come
_NO_AGENT = 0.1  #: seconds that a link has to go by itself if no agent ever answered


class UnreachedError(LaunchError):
    """Hosts could not be used; `reached` are the peers of those that could: who catches it keeps or closes them."""

    def __init__(self, by_node: Mapping[str, LaunchError], hosts: int, reached: Sequence[AgentConnection] = ()) -> None:
        """`by_node` has an error for each, by the name of the node; `hosts` are as many as were asked for."""
        self.by_node = dict(sorted(by_node.items(), key=lambda item: item[1].where))
        self.errors = list(self.by_node.values())
        first = self.errors[0]
        super().__init__(first.what, first.where, first.todo, first.code)
        self.hosts = hosts
        self.reached = reached


def open_links(
    nodes: Sequence[Node],
    policy: LinkPolicy,
    environ: Mapping[str, str],
    notice: Callable[[str], None],
    fork: bool = True,
) -> list[Link]:
    """A link for every node, in order, opening; local ones first.

    `fork` False: no agent is forked, for it would inherit the descriptors of links that are open already.
    """
    found: dict[int, Link] = {}
    remote = []
    for index, node in enumerate(nodes):
        if node.local:
            found[index] = _open_local(node, found, fork)
        else:
            remote.append(index)
    if remote:
        from mslaunch.transport.bootstrap import make_boot

        boot = make_boot(policy.python)
        if policy.agent:
            from mslaunch.transport.rsh_program import open_rsh

            found.update((index, open_rsh(nodes[index], boot, policy)) for index in remote)
        else:
            from mslaunch.transport.ssh.ssh_link import open_ssh

            opened = open_ssh([nodes[index] for index in remote], boot, policy, environ, notice)
            found.update(zip(remote, opened))
    return [found[index] for index in range(len(nodes))]


def _open_local(node: Node, found: Mapping[int, Link], fork: bool) -> Link:
    if fork and _threads() == 1:
        from mslaunch.transport.fork import open_fork

        return open_fork(node, {fd for link in found.values() for fd in (link.reader, link.writer)})
    import sys

    from mslaunch.transport.bootstrap import boot_argv
    from mslaunch.transport.rsh_program import RshLink

    return RshLink(node, *boot_argv(sys.executable))


def _threads() -> int:
    """How many threads this process has: the kernel counts those of extensions as well."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def connect(
    loop: Loop,
    nodes: Sequence[Node],
    policy: LinkPolicy,
    environ: Mapping[str, str],
    notice: Callable[[str], None],
    progress: Callable[[str], None],
    wait: Callable[[Callable[[], bool]], None],
    topologies: bool = False,
) -> list[AgentConnection]:
    """Peers that have all said HELLO, in the order of `nodes`; else raises `UnreachedError`, with the others closed.

    With `topologies` all have also said what their cpus share, which costs no more time: they are asked in advance.
    Takes at most `policy.timeout` seconds and a little.  `progress` gets a line to show after a second, "" at the end.
    `wait(until)` runs the loop until `until()` is true; what it raises goes through, with all closed again.
    """
    said: list[str] = []  # by threads of links; shown by ours
    links = open_links(nodes, policy, environ, said.append)
    connecting = ConnectPhase(loop, [AgentConnection(loop, link, topologies) for link in links], policy)
    show = _Progress(loop, len(links), connecting.waiting, progress)
    try:
        wait(lambda: not connecting.waiting)
    except LaunchError:
        close_all(connecting.peers)
        raise
    finally:
        show.close()
        connecting.close()
        for text in said:
            notice(text)
    if connecting.failed:
        by_node = {peer.node.name: error for peer, error in connecting.failed.items()}
        raise UnreachedError(by_node, len(links), connecting.reached)
    return connecting.peers


def begin_connect(
    loop: Loop,
    nodes: Sequence[Node],
    policy: LinkPolicy,
    environ: Mapping[str, str],
    notice: Callable[[str], None],
    done: Callable[[list[AgentConnection], list[LaunchError]], None],
) -> ConnectPhase:
    """The same while the loop runs: `done` gets those that have said HELLO, and why the others have not.

    Who asked closes all of them in the end, whether they were reached or not.
    """
    said: list[str] = []
    links = open_links(nodes, policy, environ, said.append, fork=False)

    def finished() -> None:
        connecting.stop()
        for text in said:
            notice(text)
        done(connecting.reached, sorted(connecting.failed.values(), key=lambda error: error.where))

    connecting = ConnectPhase(loop, [AgentConnection(loop, link) for link in links], policy, finished)
    return connecting


class ConnectPhase:
    """Peers on their way to HELLO, at most `policy.fanout` of them at a time where a link waits for its turn."""

    def __init__(
        self,
        loop: Loop,
        peers: list[AgentConnection],
        policy: LinkPolicy,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """`done` is called, later, once nobody is waited for any more."""
        self.peers = peers
        self.waiting = set(peers)
        self.failed: dict[AgentConnection, LaunchError] = {}
        self._loop = loop
        self._seconds = policy.timeout
        self._done = done
        self._turns = iter(peers)
        for peer in peers:
            peer.attach(partial(self._ended, peer), on_ready=partial(self._settle, peer))
        for _ in range(max(1, policy.fanout)):
            self._begin_next()
        self._limit = loop.after(policy.timeout + 0.5, self._look_at_clocks)

    def _begin_next(self) -> None:
        peer = next(self._turns, None)
        if peer:
            peer.begin()

    def _settle(self, peer: AgentConnection) -> None:
        if peer in self.waiting:
            self.waiting.discard(peer)
            self._begin_next()
            if not self.waiting:
                self._loop.soon(self._done)

    def _fail(self, peer: AgentConnection, error: LaunchError) -> None:
        """The first error says why; that the link has ended follows from it."""
        self.failed.setdefault(peer, error)
        self._settle(peer)

    @property
    def reached(self) -> list[AgentConnection]:
        """Those that are there."""
        return [peer for peer in self.peers if peer not in self.failed and peer not in self.waiting]

    def _ended(self, peer: AgentConnection, error: LinkError | None) -> None:
        self._fail(peer, error or LinkError("its agent ended at once", peer.node.name))

    def _look_at_clocks(self) -> None:
        """Each link has its own: one may wait for its turn, or for a person who types a passphrase."""
        todo = "does its login shell wait for input?  --connect-timeout gives it more time"
        for peer in [peer for peer in self.waiting if peer.link.overdue(self._seconds)]:
            what = f"no answer within {self._seconds:g} seconds"
            self._fail(peer, peer.link.failure() or LinkError(what, peer.node.name, "" if peer.hello else todo))
        self._limit = self._loop.after(0.25, self._look_at_clocks)

    def stop(self) -> None:
        """No more waiting."""
        self._limit.cancel()

    def close(self) -> None:
        """No more waiting, and those that are not there are closed."""
        self.stop()
        close_all([peer for peer in self.peers if peer in self.waiting or peer in self.failed])


class _Progress:
    """connecting 37/64 hosts, once it takes longer than a second."""

    def __init__(self, loop: Loop, total: int, waiting: set[AgentConnection], show: Callable[[str], None]) -> None:
        self._loop = loop
        self._total = total
        self._waiting = waiting
        self._show = show
        self._shown = False
        self._timer = loop.after(SLOW, self._tick)

    def _tick(self) -> None:
        self._shown = True
        self._show(f"connecting {self._total - len(self._waiting)}/{self._total} hosts")
        self._timer = self._loop.after(0.2, self._tick)

    def close(self) -> None:
        self._timer.cancel()
        if self._shown:
            self._show("")


def close_all(peers: Sequence[AgentConnection], seconds: float = 5.0) -> list[str]:
    """Close all links, and wait for what carried them; returns the hosts of those that would not go."""
    for peer in peers:
        peer.close()
    stuck = []
    import time

    deadline = time.monotonic() + seconds
    for peer in peers:
        # without an agent there is nobody to say goodbye to
        patience = max(0.0, deadline - time.monotonic()) if peer.hello else _NO_AGENT
        if not peer.link.wait(patience):
            peer.link.kill()
            if peer.hello:
                stuck.append(peer.node.name)
    return stuck
