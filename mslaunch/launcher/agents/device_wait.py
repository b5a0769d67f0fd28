"""The wait until no process holds the accelerators of the hosts of an attempt any more (--device-wait).

After a failure a process that was killed may hold the memory of a device for many seconds, and so may what has left its
rank's session.  The agents of the next attempt look; the launcher asks again and again, and goes on at the limit, once
the answers that are under way have come.
"""

from __future__ import annotations

from mslaunch.errors import LinkError, UnreachedError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.connection import is_about, meaningless
from mslaunch.launcher.messages.notices import held_text
from mslaunch.protocol import frames
from mslaunch.protocol.held_devices import HeldQuestion, Holder, pack_question, unpack_holders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.runtime.loop import Loop

PART = "agent.ranks.device_holders"
SAY = 5.0  #: seconds after which the user is told who holds what
_AGAIN = 0.25  # seconds from an answer to the next question
_ANSWER = 15.0  # seconds for an answer; an agent that takes longer is of no use


def wait_for_devices(
    loop: Loop,
    connections: Sequence[AgentConnection],
    question: Callable[[], HeldQuestion],
    seconds: float,
    wait: Callable[[Callable[[], bool], float], None],
    notice: Callable[[str], None],
) -> None:
    """Ask all agents until nothing is held, or so many seconds have passed; tells the user who holds what.

    Whoever was asked may take `_ANSWER` seconds, also beyond that limit: nobody else could take the answer.
    `wait(until, seconds)` runs the loop, and what it raises goes through.  Raises `UnreachedError` for lost agents.
    """
    from mslaunch.transport.bootstrap.agent_program import part_frame

    part = part_frame(PART)
    nodes = [_HeldNode(loop, connection, part, question, len(connections)) for connection in connections]
    try:
        wait(lambda: all(node.free for node in nodes), min(seconds, SAY))
        if seconds > SAY and any(node.holders for node in nodes):
            notice(held_text(_by_host(nodes), seconds, over=False))
        if seconds > SAY:
            wait(lambda: all(node.free for node in nodes), seconds - SAY)
        if any(node.holders for node in nodes):
            notice(held_text(_by_host(nodes), seconds, over=True))
        for node in nodes:
            node.stop()
        wait(lambda: not any(node.waiting for node in nodes), _ANSWER)
    finally:
        for node in nodes:
            node.close()


def _by_host(nodes: Sequence[_HeldNode]) -> dict[str, list[Holder]]:
    return {node.name: node.holders for node in nodes if node.holders}


class _HeldNode:
    """The accelerators of one node."""

    def __init__(
        self, loop: Loop, connection: AgentConnection, part: bytes, question: Callable[[], HeldQuestion], hosts: int
    ) -> None:
        """`hosts`: how many are asked."""
        self.name = connection.node.name
        self.holders: list[Holder] = []  # when it was asked last
        self.free = False
        self.waiting = False  # for an answer
        self._loop = loop
        self._connection = connection
        self._question = question
        self._hosts = hosts
        self._stopped = False
        connection.attach(self._on_end, self._on_frame)
        connection.send(part)
        self._timer = self._limit = loop.after(0, self._ask)

    def _ask(self) -> None:
        self.waiting = True
        self._limit = self._loop.after(_ANSWER, self._give_up)
        self._connection.send(frames.encode(frames.HELD, payload=pack_question(self._question())))

    def _on_frame(self, frame: frames.Frame) -> None:
        if frame.kind != frames.HOLDERS or not is_about(frame, here=False) or not self.waiting:
            raise meaningless(frame)
        self.waiting = False
        self._limit.cancel()
        self.holders = unpack_holders(frame.payload)
        self.free = not self.holders
        if not (self.free or self._stopped):
            self._timer = self._loop.after(_AGAIN, self._ask)

    def _on_end(self, error: LinkError | None) -> None:
        error = error or LinkError("its agent ended before the ranks were started", self.name)
        raise UnreachedError({self.name: error}, self._hosts)

    def _give_up(self) -> None:
        self._on_end(LinkError(f"its agent did not say within {_ANSWER:g} s who holds its devices", self.name))

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        self._timer.cancel()

    def close(self) -> None:
        self.stop()
        self._limit.cancel()
        self._connection.detach()
