"""Questions to hosts that no rank runs on yet (CHECK), asked of many at once, and their answers."""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, LaunchError
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.launcher.agents.connection import meaningless
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.launcher.agents.connection import AgentConnection

PART = "agent.checks.answer_checks"


class HostQuestions:
    """Asks agents that are READY; one question of each is open at a time."""

    def __init__(self, wait: Callable[[Callable[[], bool], float | None], None]) -> None:
        """`wait(until, seconds)` runs the loop; what it raises goes through."""
        self._wait = wait
        self._have_part: set[AgentConnection] = set()

    def ask(
        self,
        questions: Mapping[AgentConnection, bytes],
        seconds: float,
        came: Callable[[str], object] = lambda name: None,
    ) -> tuple[dict[str, bytes], dict[str, LaunchError]]:
        """Payloads of CHECK; the answers by the names of nodes, and why there are no others.

        `came` is called when the answer of a node has come.
        """
        answers: dict[str, bytes] = {}
        errors: dict[str, LaunchError] = {}

        def answered(name: str, frame: frames.Frame) -> None:
            if frame.kind != frames.CHECKED or frame.rank != frames.NO_RANK or name in answers:
                raise meaningless(frame)
            answers[name] = frame.payload
            came(name)

        def ended(name: str, error: LaunchError | None) -> None:
            errors[name] = error or LaunchError("the agent ended while the host was checked", name, code=EXIT_LOST)

        for connection, payload in questions.items():
            name = connection.node.name
            connection.attach(partial(ended, name), partial(answered, name))
            if connection not in self._have_part and not connection.node.local:  # which has it as files
                connection.send(_part())
            self._have_part.add(connection)
            connection.send(frames.encode(frames.CHECK, payload=payload))
        names = {connection.node.name for connection in questions}
        try:
            self._wait(lambda: names <= answers.keys() | errors.keys(), seconds)
        finally:
            for connection in questions:
                connection.detach()
        for name in names - answers.keys() - errors.keys():
            errors[name] = LaunchError(f"it did not answer within {seconds:g} s", name, "is it overloaded?")
        return answers, errors


def _part() -> bytes:
    """What the agents need for this: sent before the question, so that an agent need not ask for it (NEED)."""
    from mslaunch.transport.bootstrap.agent_program import pack_part, part

    return frames.encode(frames.PART, payload=pack_part(part(PART)))
