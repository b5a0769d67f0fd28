"""The agents of a running job by the number of their node: frames to them, and PAUSE for what their ranks print."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mslaunch.errors import LinkError
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.protocol.control import Hello


class JobAgents:
    """One agent a node; nodes of spawned ranks are added later."""

    def __init__(self, connections: Iterable[AgentConnection]) -> None:
        """`connections` in the order of the job's nodes."""
        self._by_node = dict(enumerate(connections))
        self._on_end: Callable[[int, LinkError | None], None]
        self._on_frame: Callable[[int, frames.Frame], None]
        self.paused = False

    def attach(
        self, on_end: Callable[[int, LinkError | None], None], on_frame: Callable[[int, frames.Frame], None]
    ) -> None:
        """Own all of them, those that are added later included; both get the number of the node first."""
        self._on_end, self._on_frame = on_end, on_frame
        for node in self._by_node:
            self._attach(node)

    def _attach(self, node: int) -> None:
        self._by_node[node].attach(partial(self._on_end, node), partial(self._on_frame, node))

    def add(self, node: int, connection: AgentConnection) -> None:
        """One more."""
        self._by_node[node] = connection
        self._attach(node)
        if self.paused:
            self.send(node, frames.encode(frames.PAUSE))

    @property
    def hellos(self) -> dict[int, Hello]:
        """What each said when it started."""
        return {node: connection.hello for node, connection in self._by_node.items() if connection.hello}

    def host(self, node: int) -> str:
        """The name of a node."""
        return self._by_node[node].node.name

    def crashed(self, node: int) -> bool:
        """The agent of a node sent a traceback of its own."""
        return self._by_node[node].crashed

    def send(self, node: int, frame: bytes) -> None:
        """One frame to the agent of a node."""
        self._by_node[node].send(frame)

    def send_all(self, frame: bytes) -> None:
        """One frame to every agent."""
        for connection in self._by_node.values():
            connection.send(frame)

    def pause(self, on: bool) -> None:
        """Let all ranks wait that print, or let them go on.

        What is under way at a PAUSE still comes: on each link at most `writer.HIGH` and what its buffers hold.
        """
        if on != self.paused:
            self.paused = on
            self.send_all(frames.encode(frames.PAUSE if on else frames.RESUME))
