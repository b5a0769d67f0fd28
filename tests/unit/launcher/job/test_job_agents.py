"""The agents of a job: who asks for more to be sent to a host that has enough on its way waits, until the job ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import WireError
from mslaunch.launcher.agents.connection import MOST, AgentConnection
from mslaunch.launcher.job.job_actions import JobAgents
from mslaunch.protocol import frames
from mslaunch.runtime.loop import Loop
from mslaunch.transport.base import Link

MUCH = frames.encode(frames.RELEASE, payload=bytes(MOST + (1 << 20)))


class Two:
    """A job of two hosts; what each is sent can be read."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.ends: list[int] = []
        connections = []
        for number in range(2):
            (down, writer), (reader, up) = os.pipe(), os.pipe()
            self.ends += [down, up]
            connections.append(AgentConnection(self.loop, Link(Node(f"n{number}", 1, "-H"), reader, writer)))
        self.connections = connections
        self.agents = JobAgents(connections)
        self.agents.attach(lambda node, error: None, lambda node, frame: None)

    def ask(self, node: int, of: int, frame: bytes) -> None:
        """A frame of a node makes the launcher send one to another."""
        on = self.agents.asked(lambda node, asked: self.agents.send(of, frame))
        on(node, frames.Frame(frames.ASK, frames.NO_RANK, b""))

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        for fd in self.ends:
            os.close(fd)
        self.loop.close()


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.close()


def test_one_large_frame_holds_nobody_up(two: Two) -> None:
    two.ask(0, 1, MUCH)
    assert two.agents.full(1) and not two.connections[0].behind


def test_who_asks_for_more_waits_and_what_was_asked_is_sent(two: Two) -> None:
    two.agents.send(1, MUCH)
    two.ask(0, 1, frames.encode(frames.QUESTION, payload=b"x"))
    assert two.connections[0].behind == {two.connections[1]}
    os.set_blocking(two.ends[2], False)
    came = 0

    def read() -> None:
        nonlocal came
        came += len(os.read(two.ends[2], 1 << 16))

    two.loop.reader(two.ends[2], read)
    assert two.loop.run(lambda: came == len(MUCH) + 10, 20)
    two.loop.reader(two.ends[2], None)
    assert not two.connections[0].behind


def test_what_nobody_asked_for_holds_nobody_up(two: Two) -> None:
    two.agents.send(1, MUCH)
    two.agents.send(1, frames.encode(frames.END, payload=b"1"))
    assert not two.connections[0].behind and not two.connections[1].behind


def test_nobody_waits_for_another_one_once_the_job_is_being_ended(two: Two) -> None:
    two.agents.send(1, MUCH)
    two.ask(0, 1, frames.encode(frames.QUESTION))
    two.agents.end()
    assert two.loop.run(lambda: not two.connections[0].behind, 5)
    before = two.connections[1].pending
    two.ask(0, 1, frames.encode(frames.QUESTION))
    assert not two.connections[0].behind and two.connections[1].pending == before, "it is dropped"
    two.agents.send(1, frames.encode(frames.END, payload=b"1"))
    assert two.connections[1].pending > before, "the order to end is not"


def test_a_host_that_is_lost_holds_nobody_up(two: Two) -> None:
    two.agents.send(1, MUCH)
    two.ask(0, 1, frames.encode(frames.QUESTION))
    two.connections[1].close()
    assert two.loop.run(lambda: not two.connections[0].behind, 5)


def test_an_error_of_a_handler_leaves_nobody_asking(two: Two) -> None:
    def refuse(node: int, frame: Any) -> None:
        raise WireError("no")

    with pytest.raises(WireError):
        two.agents.asked(refuse)(0, frames.Frame(frames.ASK, frames.NO_RANK, b""))
    two.agents.send(1, MUCH)
    two.agents.send(1, MUCH)
    assert not two.connections[0].behind
