"""Who takes part in another attempt: commands that come, leave and end their ranks while others are waited for."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mslaunch.datamodel.request import HostMeeting
from mslaunch.errors import LaunchError
from mslaunch.launcher.peers.job_peers import JobPeers
from mslaunch.launcher.peers.meeting_host import MeetingHost
from mslaunch.launcher.peers.meeting_records import MeetingFacts, Part

ASKED = HostMeeting("n0", "10.0.0.1", 29400, True, 3, 3, 1, "none", "/s", 600.0, 30.0, restarts=2)


class FakeLink:
    """The connection of a command; what it was sent is kept."""

    def __init__(self) -> None:
        self.host = self.changed = ""
        self.sent: list[str] = []

    def send(self, kind: str, value: Any) -> None:
        self.sent.append(json.dumps({kind: value}))

    def close(self) -> None:
        """Nothing more is heard."""


class MeetingOfThree:
    """The host of a meeting of three; `then` is what happens while it waits, a step for each wait."""

    def __init__(self) -> None:
        self.then: list[Callable[[], None]] = []
        self.said: list[str] = []
        timer = SimpleNamespace(cancel=lambda: None)
        loop: Any = SimpleNamespace(after=lambda seconds, act: timer, reader=lambda fd, read: None)
        interrupts: Any = SimpleNamespace(wait=self._wait)
        context: Any = SimpleNamespace(loop=loop, interrupts=interrupts, console=SimpleNamespace(info=self.said.append))
        self.peers = JobPeers("n0", 2, central=True)
        self.host = MeetingHost(MeetingFacts(context, ASKED, "n0", bytes(32), self.peers), socket.socket())

    def _wait(self, until: Callable[[], bool], seconds: float) -> None:
        if self.then:
            self.then.pop(0)()

    def come(self, name: str) -> Any:
        link: Any = FakeLink()
        self.host._unsaid.add(link)
        self.host._heard(link, "join", [name, 1, 3, 3, "none", 2, None])
        return link

    def begin(self) -> tuple[Any, Any]:
        links: list[Any] = []
        self.then = [lambda: links.extend([self.come("n1"), self.come("n2")])]
        assert self.host.first().attempt == 1
        return links[0], links[1]


@pytest.fixture
def three() -> Iterator[MeetingOfThree]:
    made = MeetingOfThree()
    yield made
    made.host.close()


def told(link: Any, kind: str) -> list[str]:
    return [text for text in link.sent if kind in json.loads(text)]


def test_one_that_comes_while_others_end_their_ranks_takes_the_place_of_a_lost_one(three: MeetingOfThree) -> None:
    stays, lost = three.begin()
    three.host._left(lost)
    new: list[Any] = []

    def come_first() -> None:
        new.append(three.come("n3"))
        three.host._heard(stays, "ready", 1)

    three.then = [come_first]
    part = three.host.again(2)
    assert part == Part(0, (1, 1, 1), "10.0.0.1", part.port, 2)
    assert told(stays, "go") and told(new[0], "go") and not told(new[0], "refused")


def test_one_whose_ranks_do_not_end_is_left_out(three: MeetingOfThree) -> None:
    slow, quick = three.begin()
    new: list[Any] = []
    three.then = [lambda: three.host._heard(quick, "ready", 1), lambda: new.append(three.come("n3"))]
    assert len(three.host.again(2).sizes) == 3
    assert told(slow, "refused") and told(new[0], "go")


def test_nobody_comes(three: MeetingOfThree) -> None:
    stays, lost = three.begin()
    three.host._left(lost)
    three.then = [lambda: three.host._heard(stays, "ready", 1)]
    with pytest.raises(LaunchError, match="1 more host of --nnodes 3"):
        three.host.again(2)
    assert told(stays, "refused")


def test_those_who_wait_for_a_place_are_told_and_the_first_of_them_are_named(three: MeetingOfThree) -> None:
    """Who knows the secret and comes again and again fills no terminal."""
    three.begin()
    spares = [three.come(f"s{number}") for number in range(50)]
    assert all(told(spare, "wait") for spare in spares)
    assert [text for text in three.said if "when the ranks are started again" in text] == three.said[-5:]
