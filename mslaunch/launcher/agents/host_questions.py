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
    """Asks agents that are READY; one question of each is open at a time.

    Nothing in an answer says which question it belongs to, so an agent that owes one is asked nothing else.
    """

    def __init__(self, wait: Callable[[Callable[[], bool], float | None], None]) -> None:
        """`wait(until, seconds)` runs the loop; what it raises goes through."""
        self._wait = wait
        self._have_part: set[AgentConnection] = set()
        self._owing: set[AgentConnection] = set()  # an answer that was not waited for any longer

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

        asked = []
        for connection, payload in questions.items():
            name = connection.node.name
            if connection in self._owing and not connection.ended:
                what = "it has not answered the question before this one"
                errors[name] = LaunchError(what, name, "is it overloaded?")
                continue
            connection.attach(partial(ended, name), partial(answered, name))
            self._send(connection, payload)
            asked.append(connection)
        names = {connection.node.name for connection in questions}
        try:
            self._wait(lambda: names <= answers.keys() | errors.keys(), seconds)
        finally:
            for connection in asked:
                if connection.node.name in answers or connection.ended:
                    connection.detach()
                else:
                    self._owing.add(connection)
                    connection.attach(_ignore, partial(self._late, connection))
        for name in names - answers.keys() - errors.keys():
            errors[name] = LaunchError(f"it did not answer within {seconds:g} s", name, "is it overloaded?")
        return answers, errors

    def _send(self, connection: AgentConnection, payload: bytes) -> None:
        """A question, and what the agent needs for the first one."""
        if connection not in self._have_part:
            from mslaunch.transport.bootstrap.agent_program import part_frame

            connection.send(part_frame(PART))
        self._have_part.add(connection)
        connection.send(frames.encode(frames.CHECK, payload=payload))

    def _late(self, connection: AgentConnection, frame: frames.Frame) -> None:
        """The answer that an agent owes: nobody wants it any more, and it can be asked again."""
        if frame.kind != frames.CHECKED or frame.rank != frames.NO_RANK:
            raise meaningless(frame)
        self._owing.discard(connection)
        connection.detach()


def _ignore(error: LaunchError | None) -> None:
    """The end of an agent of which nothing is wanted just now; who asks it next is told."""
