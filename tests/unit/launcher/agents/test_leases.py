"""Leases, by virtual time: who is given up and when, and who is not."""

from __future__ import annotations

import os
import re
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import VirtualClock

from mslaunch.agent.launcher_link import LauncherLink
from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import LinkError
from mslaunch.launcher.agents.connection import MOST, AgentConnection
from mslaunch.launcher.agents.leases import BUSY_LEASES
from mslaunch.launcher.agents.link_room import LinkRoom, hold, wait_for_itself
from mslaunch.launcher.agents.start_agents import OpenLinks
from mslaunch.protocol import control, frames
from mslaunch.runtime.loop import Clock, Loop
from mslaunch.transport.base import Link

ROOT = Path(__file__).resolve().parents[4]
HELLO = frames.encode(frames.HELLO, payload=control.pack_record(control.Hello("n1", 4711, 2, 2, "3.11", ())))
ALIVE = frames.encode(frames.ALIVE)
BUSY = frames.encode(frames.ALIVE, payload=frames.BUSY)
BIG = frames.header(frames.STDOUT, 1 << 20, 0)


class Pair:
    """A link of a launcher, whose other end is the test's."""

    def __init__(self, clock: Clock, heartbeat: float = 5.0, lease: float = 15.0) -> None:
        self.loop = Loop(clock)
        (self.down, writer), (reader, self.up) = os.pipe(), os.pipe()
        self.links = OpenLinks(self.loop, LinkPolicy(heartbeat=heartbeat, lease=lease))
        self.connection = AgentConnection(self.loop, Link(Node("n1", 1, "-H"), reader, writer))
        self.ends: list[LinkError | None] = []
        self.connection.attach(self.ends.append, lambda frame: None)
        self.links.add(self.connection)
        os.write(self.up, frames.MAGIC + HELLO)

    def run(self, seconds: float) -> None:
        self.loop.run(lambda: bool(self.ends), seconds)

    def heard(self) -> bytes:
        os.set_blocking(self.down, False)
        try:
            return os.read(self.down, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.links.close()
        self.connection.close()
        for fd in (self.down, self.up):
            os.close(fd)
        self.loop.close()


@pytest.fixture
def hours() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def pair(hours: VirtualClock) -> Iterator[Pair]:
    made = Pair(hours)
    yield made
    made.close()


def test_a_silent_agent_is_given_up_after_a_lease(pair: Pair, hours: VirtualClock) -> None:
    pair.run(100)
    assert 1015 <= hours.time <= 1020.1
    (error,) = pair.ends
    assert error and re.match(r"n1: nothing was heard from n1 for \d\d s: .*agent \(process 4711 there\)", str(error))


def test_one_that_speaks_is_not(pair: Pair) -> None:
    """A sign of life, or a part of a large frame."""
    for data in (ALIVE, ALIVE, BIG, b"x", b"x", b"x"):
        pair.run(12)
        os.write(pair.up, data)
    assert not pair.ends
    pair.run(100)
    assert pair.ends


def test_one_that_starts_processes_has_more_time(pair: Pair, hours: VirtualClock) -> None:
    for _ in range(2):  # processes
        os.write(pair.up, BUSY)
        pair.run(BUSY_LEASES * 15 - 10)
        assert not pair.ends
    os.write(pair.up, ALIVE)
    before = hours.time
    pair.run(100)
    assert pair.ends and hours.time < before + 25


def test_a_launcher_that_was_stopped_counts_anew(pair: Pair, hours: VirtualClock) -> None:
    pair.run(6)
    hours.time += 3600
    pair.run(14)
    assert not pair.ends


def test_what_goes_down(pair: Pair, hours: VirtualClock) -> None:
    """The terms first; then a sign of life for each heartbeat in which nothing else went."""
    pair.run(9)
    os.write(pair.up, ALIVE)
    pair.run(12)
    terms, sign = frames.encode(frames.LEASE, payload=b"5 15"), frames.encode(frames.LEASE)
    assert pair.heard() == terms + 4 * sign
    pair.connection.send(frames.encode(frames.PAUSE))
    os.write(pair.up, ALIVE)
    pair.run(2)
    assert pair.heard() == frames.encode(frames.PAUSE)


@pytest.mark.parametrize("lease", [15.0, 0.0])
def test_terms_without_a_lease(hours: VirtualClock, lease: float) -> None:
    pair = Pair(hours, lease=lease)
    pair.run(7200)
    assert bool(pair.ends) == bool(lease)
    pair.close()


def test_an_agent_gives_its_launcher_up(hours: VirtualClock) -> None:
    """It says so, and counts anew after it was stopped itself."""
    (reader, down), (up, writer) = os.pipe(), os.pipe()
    lost: list[Any] = []
    loop = Loop(hours)
    LauncherLink(loop, (reader, writer), lambda frame: None, lambda: lost.append(hours.time), lambda on: None)
    os.write(down, frames.encode(frames.LEASE, payload=b"5 15"))
    loop.run(lambda: False, 6)
    hours.time += 3600
    loop.run(lambda: False, 12)
    os.write(down, frames.encode(frames.LEASE, payload=b"0 0"))
    loop.run(lambda: False, 3600)
    os.write(down, frames.encode(frames.LEASE))  # a sign of life that was under way
    loop.run(lambda: False, 3600)
    assert not lost
    os.write(down, frames.encode(frames.LEASE, payload=b"5 15"))
    began = hours.time
    loop.run(lambda: bool(lost), 60)
    assert 15 <= lost[0] - began <= 20.1
    said = [frame.payload for frame in frames.Decoder().feed(os.read(up, 1 << 16))]
    assert re.fullmatch(frames.GIVEN_UP + rb" (1\d|20)", said[-1]) and frames.SUSPENDED in said
    for fd in (reader, down, up, writer):
        os.close(fd)
    loop.close()


def signs_of_life() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "signs of life"}


def test_a_launcher_whose_loop_is_blocked_is_still_heard() -> None:
    """As by a write to a log on a file system that hangs; a thread speaks, and agents do not end."""
    before = signs_of_life()
    pair = Pair(Clock(), heartbeat=0.05, lease=100.0)
    pair.run(0.2)
    signs: list[bytes] = []

    def block() -> None:
        pair.heard()
        while b"".join(signs).count(frames.encode(frames.LEASE)) < 3:
            assert select.select([pair.down], [], [], 60)[0], signs
            signs.append(pair.heard())

    pair.loop.after(0, block)
    pair.run(0.01)
    assert signs, "it was blocked"
    pair.close()
    assert not signs_of_life() - before


def test_waits_do_not_follow_a_clock_that_is_set() -> None:
    """All waits go by CLOCK_MONOTONIC; the time of day is only written down, or compared with that of other hosts."""
    compared = {"agent/checks/answer_checks.py", "agent/checks/host_limits.py", "preflight/ask_hosts.py"}
    for path in (ROOT / "mslaunch").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        known = str(path.relative_to(ROOT / "mslaunch")) in compared
        if (
            path.parent.name not in ("jobs", "actions", "monitoring") and not known
        ):  # when a job began and ended, for people; and the age of old entries
            assert not re.search(r"\btime\.time\(|datetime\.now|CLOCK_REALTIME", text), path


@pytest.mark.parametrize("word", [b"lost", b"lost \xff", b"lost -1e9 \x1b[2J", b"lost " + b"9" * 5000])
def test_an_agent_that_gives_up_in_other_words_is_given_up(pair: Pair, word: bytes) -> None:
    os.write(pair.up, frames.encode(frames.ALIVE, payload=word))
    pair.run(4)
    (error,) = pair.ends
    assert error and "\x1b" not in str(error) and len(str(error).splitlines()) < 4


# --- much waits for a host


MUCH = frames.encode(frames.RELEASE, payload=bytes(2 * MOST))
ASK = frames.encode(frames.ASK)


def take(pair: Pair) -> None:
    """Read a little of what was sent down, if it has arrived."""
    os.set_blocking(pair.down, False)
    try:
        os.read(pair.down, 1 << 16)
    except BlockingIOError:
        pass


def test_a_host_that_reads_nothing_of_much_is_given_up_though_it_is_heard(pair: Pair, hours: VirtualClock) -> None:
    pair.connection.send(MUCH)
    while not pair.ends:
        os.write(pair.up, ALIVE)
        pair.run(1)
    (error,) = pair.ends
    assert error and "it has read nothing for" in error.what and "of the 15 MiB that wait for it" in error.what
    assert 1015 <= hours.time <= 1021


def test_a_host_that_reads_a_little_of_much_is_kept(pair: Pair) -> None:
    pair.connection.send(MUCH)
    for _ in range(20):
        pair.run(10)
        take(pair)
        os.write(pair.up, ALIVE)
    assert pair.ends == []


def test_a_host_that_reads_nothing_of_little_is_kept(pair: Pair) -> None:
    pair.connection.send(frames.encode(frames.RELEASE, payload=bytes(MOST - 100)))
    for _ in range(20):
        pair.run(10)
        os.write(pair.up, ALIVE)
    assert pair.ends == []


def test_a_host_that_asks_for_more_than_it_reads_is_not_read_and_lives(pair: Pair) -> None:
    """Nothing that it says is heard meanwhile, and nothing that it asks is answered twice."""
    came: list[int] = []
    pair.connection.attach(pair.ends.append, lambda frame: came.append(frame.kind))
    pair.run(0.1)
    pair.connection.send(MUCH)
    os.write(pair.up, frames.encode(frames.STDERR, 0, b"x") + ASK + frames.encode(frames.STDERR, 0, b"y") + ASK)
    pair.run(0.1)
    assert came == [frames.STDERR] and pair.connection.behind
    for _ in range(20):
        pair.run(10)
        take(pair)
    assert pair.ends == [] and came == [frames.STDERR]
    while pair.connection.pending > MOST // 2:
        take(pair)
        pair.run(0.001)
    pair.run(0.1)
    assert came == [frames.STDERR, frames.ASK, frames.STDERR, frames.ASK] and not pair.connection.behind
    os.write(pair.up, ALIVE)
    pair.run(10)
    assert pair.ends == []
    pair.run(100)
    assert len(pair.ends) == 1, "its lease counts again"


def test_a_host_that_waits_for_another_one_is_not_given_up(pair: Pair, hours: VirtualClock) -> None:
    """It cannot be heard, and goes on once the other one was given up."""
    (down, writer), (reader, up) = os.pipe(), os.pipe()
    deaf, ends = AgentConnection(pair.loop, Link(Node("n2", 1, "-H"), reader, writer)), []
    came: list[int] = []
    pair.connection.attach(pair.ends.append, lambda frame: came.append(frame.kind))
    deaf.attach(ends.append)
    pair.links.add(deaf)
    try:
        os.write(up, frames.MAGIC + HELLO)
        pair.run(0.1)
        deaf.send(MUCH)
        hold(pair.connection, deaf)
        os.write(pair.up, frames.encode(frames.STDERR, 0, b"x"))
        for _ in range(14):
            pair.run(1)
        assert pair.ends == [] and ends == [] and came == []
        for _ in range(7):
            pair.run(1)
            os.write(pair.up, ALIVE)
        assert pair.ends == [] and len(ends) == 1 and came == [frames.STDERR]
    finally:
        deaf.close()
        os.close(down)
        os.close(up)


@pytest.mark.parametrize("hours_asleep", [8, 23])
def test_without_a_lease_a_host_may_sleep_for_a_night(hours: VirtualClock, hours_asleep: int) -> None:
    pair = Pair(hours, lease=0.0)
    try:
        pair.run(0.1)
        pair.connection.send(MUCH)
        os.write(pair.up, ASK)
        pair.run(hours_asleep * 3600)
        assert pair.connection.behind and pair.ends == []
        take(pair)
        pair.run(hours_asleep * 3600)
        assert pair.ends == []
        pair.run(25 * 3600)
        assert "it has read nothing for 8.64e+04 s" in str(pair.ends)
    finally:
        pair.close()


def test_who_does_not_wait_for_another_one_any_more_is_read(pair: Pair) -> None:
    """As when the job is being ended."""
    (down, writer), (reader, up) = os.pipe(), os.pipe()
    deaf = AgentConnection(pair.loop, Link(Node("n2", 1, "-H"), reader, writer))
    came: list[int] = []
    pair.connection.attach(pair.ends.append, lambda frame: came.append(frame.kind))
    try:
        pair.run(0.1)
        deaf.send(MUCH)
        hold(pair.connection, deaf)
        os.write(pair.up, frames.encode(frames.STDERR, 0, b"x"))
        pair.run(1)
        assert came == []
        wait_for_itself(pair.connection)
        pair.run(1)
        assert came == [frames.STDERR]
    finally:
        deaf.close()
        os.close(down)
        os.close(up)


def test_no_timer_stays_once_there_is_room() -> None:
    """It would hold the connection of an attempt that is over for a day."""
    with Loop() as loop:
        room = LinkRoom(SimpleNamespace(loop=loop, took=0.0, pending=0))  # type: ignore[arg-type]
        called: list[bool] = []
        room.wait(lambda: called.append(True))
        room.is_there()
        assert loop.run(lambda: bool(called), 10)
        assert not [timer for _, _, timer in loop._timers if timer.callback]
