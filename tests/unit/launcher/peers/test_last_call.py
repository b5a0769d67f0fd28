"""How long the host of a meeting waits for more commands than the fewest: with a loop whose clock stands still."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mslaunch.datamodel.request import HostMeeting
from mslaunch.launcher.peers.job_peers import JobPeers
from mslaunch.launcher.peers.meeting_host import MeetingHost
from mslaunch.launcher.peers.meeting_records import MeetingFacts

ASKED = HostMeeting("n0", "10.0.0.1", 29400, True, 2, 4, 1, "none", "/s", 600.0, 30.0)


class Timers:
    """The timers of a loop that have been neither cancelled nor fired."""

    def __init__(self) -> None:
        self.pending: list[Callable[[], None]] = []

    def reader(self, fd: int, read: Any) -> None:
        """Nobody calls."""

    def after(self, seconds: float, act: Callable[[], None]) -> Any:
        self.pending.append(act)
        return SimpleNamespace(cancel=lambda: self.pending.remove(act) if act in self.pending else None)

    def fire(self) -> None:
        self.pending.pop(0)()


class Link:
    """The connection of a command that sends nothing more."""

    host = ""


def test_the_last_call_is_counted_from_the_last_time_that_the_fewest_were_there() -> None:
    timers = Timers()
    context: Any = SimpleNamespace(loop=timers, interrupts=None, console=SimpleNamespace(info=print))
    facts = MeetingFacts(context, ASKED, "n0", bytes(32), JobPeers("n0", 0, central=True))
    host = MeetingHost(facts, socket.socket())

    def come(name: str) -> Any:
        link: Any = Link()
        host._unsaid.add(link)
        host._heard(link, "join", [name, 1, 2, 4, "none", 0, None])
        return link

    first = come("n1")
    assert len(timers.pending) == 1
    host._left(first)
    assert not timers.pending, "too few are there: nobody is called for the last time"
    come("n2")
    come("n3")
    assert len(timers.pending) == 1 and not host._last_call
    timers.fire()
    assert host._last_call
    host.close()
