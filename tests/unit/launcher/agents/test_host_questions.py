"""Questions to hosts: an answer belongs to the question that was asked, however late it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import LinkError, WireError
from mslaunch.launcher.agents.host_questions import HostQuestions
from mslaunch.protocol import frames


class Agent:
    """A connection that keeps what is sent, and says what a test lets it say."""

    def __init__(self, name: str) -> None:
        self.node = Node(name, 1, "-H", local=True)
        self.ended = False
        self.sent: list[bytes] = []
        self.owner: tuple[Any, Any] | None = None

    def attach(self, on_end: Callable[..., Any], on_frame: Callable[..., Any]) -> None:
        self.owner = on_end, on_frame
        if self.ended:
            on_end(None)

    def detach(self) -> None:
        self.owner = None

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def say(self, payload: bytes, kind: int = frames.CHECKED) -> None:
        assert self.owner, "nobody takes a frame"
        self.owner[1](frames.Frame(kind, frames.NO_RANK, payload))

    def end(self) -> None:
        self.ended = True
        assert self.owner
        self.owner[0](LinkError("it is gone", self.node.name))


def asking(happens: Callable[[], None]) -> HostQuestions:
    """Questions, while which `happens`."""
    return HostQuestions(lambda until, seconds: happens())


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    agent: Any = Agent("n01")
    says = iter([b"", b"first", b"third"])

    def happens() -> None:
        if payload := next(says):
            agent.say(payload)

    questions = asking(happens)
    answers, errors = questions.ask({agent: b"1"}, 8.0)
    assert (answers, errors["n01"].what) == ({}, "it did not answer within 8 s")
    answers, errors = questions.ask({agent: b"2"}, 8.0)
    assert (answers, errors["n01"].what) == ({}, "it has not answered the question before this one")
    assert len(agent.sent) == 2, "what it needs, and one question"
    answers, errors = questions.ask({agent: b"3"}, 8.0)
    assert (answers, errors, len(agent.sent)) == ({"n01": b"third"}, {}, 3)


def test_a_late_answer_between_two_questions_does_no_harm() -> None:
    late: Any = Agent("n01")
    other: Any = Agent("n02")
    questions = asking(lambda: None)
    questions.ask({late: b"1"}, 8.0)
    HostQuestions(lambda until, seconds: late.say(b"first")).ask({other: b"1"}, 8.0)
    with pytest.raises(AssertionError, match="nobody takes"):
        late.say(b"and again")


def test_what_is_no_late_answer_is_refused() -> None:
    agent: Any = Agent("n01")
    asking(lambda: None).ask({agent: b"1"}, 8.0)
    with pytest.raises(WireError):
        agent.say(b"", frames.HELLO)


def test_an_agent_that_ends_while_it_owes_an_answer_is_told_as_ended() -> None:
    agent: Any = Agent("n01")
    questions = asking(lambda: None)
    questions.ask({agent: b"1"}, 8.0)
    agent.end()
    assert "ended" in questions.ask({agent: b"2"}, 8.0)[1]["n01"].what


def test_two_answers_to_one_question_are_refused() -> None:
    agent: Any = Agent("n01")

    def twice() -> None:
        agent.say(b"1")
        with pytest.raises(WireError):
            agent.say(b"2")

    assert asking(twice).ask({agent: b"1"}, 8.0)[0] == {"n01": b"1"}
