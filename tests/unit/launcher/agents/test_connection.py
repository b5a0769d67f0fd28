"""Connections to agents: frames in both directions, phases, and why a connection ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.errors import LinkError
from mslaunch.launcher.agents.connection import (
    HELLO_CAME,
    OPENING,
    PROGRAM_SENT,
    READY,
    AgentConnection,
)
from mslaunch.protocol import control, frames
from mslaunch.protocol.program_request import ASKS
from mslaunch.runtime.loop import Loop


class Link:
    """Two pipes."""

    exit_status = None
    here = False
    sealer = opener = None

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer, self.node, self.program = reader, writer, Node("n1", 1, "-H"), None
        self.first = b""

    def begin(self) -> None:
        pass

    def stream_ended(self) -> None:
        pass

    def failure(self) -> LinkError | None:
        return None

    def noise(self) -> bytes:
        return b""

    def close(self) -> None:
        for fd in {self.reader, self.writer} - {-1}:
            os.close(fd)
        self.reader = self.writer = -1


@pytest.mark.parametrize("size", [0, 1 << 18, (1 << 18) + 1, 1 << 24])
def test_frames_of_any_size_go_down_whole_and_in_order(size: int) -> None:
    (ours, up), (down, mine) = os.pipe(), os.pipe()
    decoder = frames.Decoder()
    got: list[frames.Frame] = []
    link: Any = Link(ours, mine)
    with Loop() as loop:
        peer = AgentConnection(loop, link)
        os.set_blocking(down, False)
        loop.reader(down, lambda: got.extend(decoder.feed(os.read(down, 1 << 16))))
        payload = bytes(range(256)) * (size >> 8) + b"x" * (size & 255)
        for kind in (frames.RELEASE, frames.ANSWER):
            peer.send(frames.encode(kind, payload=payload))
        loop.run(lambda: len(got) == 2)
        peer.close()
    assert got == [frames.Frame(kind, frames.NO_RANK, payload) for kind in (frames.RELEASE, frames.ANSWER)]
    assert peer.pending == 0
    for fd in (up, down):
        os.close(fd)


# --- an agent that crashes reports its traceback: its FAULT is the error of the end, in each phase


class Host:
    """The agent's side of a link: bytes are written when a test says so."""

    def __init__(self, loop: Loop, describe: bool = False, program: Any = None) -> None:
        (down, mine), (ours, self.up) = os.pipe(), os.pipe()
        self.down = down
        link: Any = Link(ours, mine)
        link.program = program
        self.loop = loop
        self.connection = AgentConnection(loop, link, describe={} if describe else None)
        self.ends: list[LinkError | None] = []
        self.heard: list[frames.Frame] = []

    def attach(self) -> None:
        self.connection.attach(self.ends.append, self.heard.append)

    def say(self, *said: bytes) -> None:
        os.write(self.up, b"".join(said))

    def crash(self) -> None:
        self.say(frames.encode(frames.FAULT, payload=b"Traceback\nKeyError: 7"))
        os.close(self.up)


@pytest.fixture
def host() -> Iterator[Host]:
    with Loop() as loop:
        made = Host(loop)
        yield made
        made.connection.close()
        os.close(made.down)


HELLO = frames.encode(frames.HELLO, payload=control.pack_record(control.Hello("n1", 7, 2, 2, "3.11", ())))


def traceback_of(error: LinkError | None) -> str:
    assert error
    return str(error)


FAULT = "n1: internal error in the agent (please report this)\n  | Traceback\n  | KeyError: 7"


def test_an_agent_that_lacks_something_is_no_internal_error(host: Host) -> None:
    host.attach()
    host.say(frames.MAGIC, HELLO, frames.encode(frames.FAULT, payload=b"the agent has no more memory"))
    host.loop.run(lambda: bool(host.ends), 5)
    assert traceback_of(host.ends[0]) == "n1: the agent has no more memory"


def test_a_crash_before_hello(host: Host) -> None:
    host.attach()
    host.say(frames.MAGIC)
    host.crash()
    host.loop.run(lambda: bool(host.ends))
    assert [traceback_of(error) for error in host.ends] == [FAULT]
    assert host.connection.phase < HELLO_CAME


def test_a_crash_before_the_host_is_described() -> None:
    with Loop() as loop:
        host = Host(loop, describe=True)
        host.attach()
        host.say(frames.MAGIC, HELLO)
        loop.run(lambda: host.connection.phase == HELLO_CAME)
        host.crash()
        loop.run(lambda: bool(host.ends))
        assert [traceback_of(error) for error in host.ends] == [FAULT]
        host.connection.close()
        os.close(host.down)


def test_hosts_that_say_the_same_about_their_cpus_share_one_topology() -> None:
    each = (0, 1)
    said = frames.encode(frames.TOPOLOGY, payload=control.pack_topology(Topology(each, (each,) * len(LEVELS), each)))
    with Loop() as loop:
        hosts = [Host(loop, describe=True) for _ in range(2)]
        for host in hosts[1:]:
            host.connection._describe = hosts[0].connection._describe
        for host in hosts:
            host.say(frames.MAGIC, HELLO, said)
        loop.run(lambda: all(host.connection.phase == READY for host in hosts))
        assert hosts[0].connection.topology is hosts[1].connection.topology
        for host in hosts:
            host.connection.close()
            os.close(host.up)
            os.close(host.down)


def test_a_crash_while_the_connection_has_no_owner(host: Host) -> None:
    """Between HELLO and LAUNCH: the next owner of the connection gets the error."""
    host.say(frames.MAGIC, HELLO)
    host.loop.run(lambda: host.connection.phase == READY)
    host.crash()
    host.loop.run(lambda: host.connection.ended)
    assert traceback_of(host.connection.error) == FAULT
    host.attach()
    host.loop.run(lambda: bool(host.ends))
    assert [traceback_of(error) for error in host.ends] == [FAULT]


def test_a_crash_while_the_owner_changes(host: Host) -> None:
    """The first owner, which has detached, gets nothing."""
    first: list[LinkError | None] = []
    host.connection.attach(first.append)
    host.say(frames.MAGIC, HELLO)
    host.loop.run(lambda: host.connection.phase == READY)
    host.connection.detach()
    host.attach()
    host.crash()
    host.loop.run(lambda: bool(host.ends))
    assert [traceback_of(error) for error in host.ends] == [FAULT] and first == []


def test_a_crash_while_ranks_run(host: Host) -> None:
    """Frames before the crash are still delivered; the end of the link that follows is no second end."""
    host.attach()
    host.say(frames.MAGIC, HELLO, frames.encode(frames.STARTED, 0, b"9"))
    host.crash()
    host.loop.run(lambda: bool(host.ends))
    host.loop.run(lambda: False, 0.05)
    assert [frame.kind for frame in host.heard] == [frames.STARTED]
    assert [traceback_of(error) for error in host.ends] == [FAULT]


def test_a_frame_for_an_unknown_rank_ends_the_link(host: Host) -> None:
    host.say(frames.MAGIC, HELLO, frames.encode(frames.STARTED, 0, b"9"))
    host.loop.run(lambda: host.connection.ended)
    assert "a frame of kind 68 about a process (0)" in traceback_of(host.connection.error)


def test_a_connection_passes_through_its_phases(host: Host) -> None:
    assert host.connection.phase == OPENING
    host.connection.begin()
    host.say(frames.MAGIC, HELLO)
    host.loop.run(lambda: host.connection.phase == READY)


ASKED = b"noise\0" + ASKS.encode() + b"kind\n"


@pytest.fixture
def asking() -> Iterator[Host]:
    with Loop() as loop:
        made = Host(loop, program=lambda kind: b"the program for " + kind.encode() + b";")
        yield made
        made.connection.close()
        os.close(made.down)


def test_frames_wait_behind_the_program_until_the_host_has_asked(asking: Host) -> None:
    terms = frames.encode(frames.LEASE, payload=b"1 5")
    asking.connection.send(terms)
    asking.loop.run(lambda: False, 0.01)
    asking.say(ASKED[:9])
    asking.loop.run(lambda: False, 0.01)
    os.set_blocking(asking.down, False)
    with pytest.raises(BlockingIOError):
        os.read(asking.down, 100)
    asking.say(ASKED[9:])
    asking.loop.run(lambda: asking.connection.phase == PROGRAM_SENT and not asking.connection.pending)
    asking.connection.send(terms)
    asking.loop.run(lambda: not asking.connection.pending)
    assert os.read(asking.down, 1000) == b"the program for kind;" + terms + terms
    asking.say(frames.MAGIC, HELLO)
    asking.loop.run(lambda: asking.connection.phase == READY)


def test_an_agent_that_never_asked_for_its_program_is_none_of_ours(asking: Host) -> None:
    asking.attach()
    asking.say(frames.MAGIC, HELLO, HELLO)
    asking.loop.run(lambda: bool(asking.ends))
    assert "means nothing here" in str(asking.ends[0])


def test_what_looked_like_a_question_is_told_with_the_rest(asking: Host) -> None:
    asking.attach()
    asking.say(b"Welcome\0mslaunch pyth")
    os.close(asking.up)
    asking.loop.run(lambda: bool(asking.ends))
    assert "Welcome" in str(asking.ends[0]) and "mslaunch pyth" in str(asking.ends[0])


# --- an agent that has died, and what its descriptors are used for next


def test_an_agent_to_which_nothing_can_be_written_ends_once(host: Host) -> None:
    """A write may fail before the end of the agent's stream is read; reading must stop then as well."""
    host.attach()
    host.connection.begin()
    reader = host.connection.link.reader
    os.close(host.down)
    os.close(host.up)
    host.connection.send(frames.encode(frames.END, payload=b"0"))
    rounds = iter(range(20))
    host.loop.run(lambda: next(rounds, None) is None, 2)
    assert len(host.ends) == 1
    host.connection.close()
    ours, up = os.pipe()
    if ours != reader:
        up = os.dup(up) if up == reader else up
        os.dup2(ours, reader)
        os.close(ours)
    host.down, mine = os.pipe()
    link: Any = Link(reader, mine)
    another = AgentConnection(host.loop, link)
    another.attach(host.ends.append)
    os.close(up)
    host.loop.run(lambda: len(host.ends) == 2, 5)
    assert len(host.ends) == 2, "the next agent on the same descriptor is heard"
    another.close()


def test_an_agent_may_be_ready_before_its_turn(host: Host) -> None:
    """Links that one command opens together may answer before the queue of --fanout begins them."""
    host.attach()
    host.say(frames.MAGIC, HELLO)
    host.loop.run(lambda: host.connection.phase == READY, 5)
    host.connection.begin()
    assert host.connection.phase == READY
    host.say(frames.encode(frames.STARTED, 0, b"7"))
    host.loop.run(lambda: bool(host.heard or host.ends), 5)
    assert host.heard and not host.ends
    os.close(host.up)


def hello(*addresses: str, seen_from: str = "") -> bytes:
    greeting = control.Hello("n1", 7, 2, 2, "3.11", addresses, seen_from)
    return frames.encode(frames.HELLO, payload=control.pack_record(greeting))


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "::ffff:10.0.0.1", "fe80::1%eth0", "fe80::1%br-x.7"])
def test_addresses_are_numbers(host: Host, address: str) -> None:
    host.attach()
    host.say(frames.MAGIC, hello("127.0.0.1", address, seen_from=address))
    assert host.loop.run(lambda: host.connection.phase == READY, 5)


@pytest.mark.parametrize(
    "address", ["attacker.example", "localhost", "10.1", "0x7f000001", "10.0.0.1%eth0", "fe80::1%a b", "", "::x"]
)
def test_a_name_is_no_address(host: Host, address: str) -> None:
    """The other hosts would ask a name service for it."""
    host.attach()
    host.say(frames.MAGIC, hello("127.0.0.1", address))
    host.loop.run(lambda: bool(host.ends), 5)
    assert "which is no IP address" in traceback_of(host.ends[0])
