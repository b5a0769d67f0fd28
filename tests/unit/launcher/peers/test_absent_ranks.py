"""Ranks of other commands that do not come: who is connected, when something is said of it, and what."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from open_descriptors import open_descriptors
from virtual_time import VirtualClock

from mslaunch.datamodel.outcome import Outcome
from mslaunch.datamodel.request import AppContext, Request, ServicePolicy, Share
from mslaunch.host.listeners import connections
from mslaunch.launcher.messages.absent_text import absent_text, unanswered_text
from mslaunch.launcher.observers import AllStarted, LaunchEnded, Observers, RankEnded, RankStarted, Waiting
from mslaunch.launcher.peers.absent_ranks import TOLD, AbsentRanks, Present, present, watch
from mslaunch.runtime.loop import Loop

LINES = """
import socket, subprocess, sys
lines = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("connected", flush=True)
sys.stdin.read()
"""


class Meeting:
    """A place where ranks meet, and processes that are ranks, with some connections each."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port: int = self._server.getsockname()[1]

    def rank(self, lines: int, below: bool = False) -> int:
        """A rank that has connected so often, or a process `below` it; its process id."""
        words = [sys.executable, "-c", LINES, str(self.port), str(lines)]
        if below:
            words = ["sh", "-c", '"$@"; true', "sh", *words]
        pipes: dict[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        child = self._stack.enter_context(subprocess.Popen(words, start_new_session=True, **pipes))
        assert child.stdout
        assert child.stdout.readline() == b"connected\n"
        self._accept(lines)
        return child.pid

    def other(self) -> socket.socket:
        """A connection of somebody else."""
        line = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        self._accept(1)
        return line

    def _accept(self, lines: int) -> None:
        for _ in range(lines):
            self._stack.enter_context(self._server.accept()[0])


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    with ExitStack() as stack:
        yield Meeting(stack)


class Clock:
    """A loop whose time passes when told; timers fire in their order."""

    def __init__(self) -> None:
        self.time = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def after(self, seconds: float, act: Callable[[], None]) -> Any:
        row = (self.time + seconds, act)
        self._timers.append(row)

        class Timer:
            def cancel(_self) -> None:
                if row in self._timers:
                    self._timers.remove(row)

        return Timer()

    def pass_to(self, time: float) -> None:
        while self._timers and min(self._timers)[0] <= time:
            row = min(self._timers, key=lambda row: row[0])
            self._timers.remove(row)
            self.time = row[0]
            row[1]()
        self.time = time

    @property
    def idle(self) -> bool:
        return not self._timers


class Watched:
    """A watch, and what it has said."""

    def __init__(self, share: Share, local: int, pids: list[int]) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.records: list[Any] = []
        loop: Any = self.clock
        self.watch = AbsentRanks(loop, share, local, self.said.append, lambda kind, *facts: self.records.append(facts))
        for number, pid in enumerate(pids):
            self.watch.observe(RankStarted(0.0, f"rank {number}", "here", pid))
        self.watch.observe(RankStarted(0.0, "the MindSpore scheduler", "here", 1))
        self.watch.observe(AllStarted(0.0, 1))


def share(port: int, size: int = 2, first: int | None = 0, address: str = "127.0.0.1", **more: Any) -> Share:
    return Share(size, first, address, port, True)._replace(**more)


def test_ranks_are_counted_by_their_connections(meeting: Meeting) -> None:
    """Of others that is all that can be known: what each of ours has tells how many they are."""
    ours = [meeting.rank(2), meeting.rank(2, below=True)]
    found = frozenset(connections(meeting.port))
    assert present(found, meeting.port, ours) == Present(2, 0, ())
    assert present(found, meeting.port, ours[:1]) == Present(1, 1, ("127.0.0.1",))
    assert present(found, meeting.port, []) == Present(0, 4, ("127.0.0.1",)), "nothing is known of what a rank has"
    kept = [meeting.other()]
    assert present(frozenset(connections(meeting.port)), meeting.port, ours).others == 1, "it may have one more soon"
    kept.append(meeting.other())
    assert present(frozenset(connections(meeting.port)), meeting.port, ours).ranks == 3
    assert connections(1) == []


def test_addresses_of_a_socket_for_both_protocols() -> None:
    """An IPv4 caller of a socket of IPv6 is the same at both ends."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as line, server.accept()[0]:
            ends = connections(port)
            assert {end.other for end in ends if end.own[1] == port} == {line.getsockname()} == {
                end.own for end in ends if end.other[1] == port
            }  # fmt: skip
        with socket.create_connection(("::1", port)), server.accept()[0]:
            assert {end.own[0] for end in connections(port)} == {"::1"}


def test_absent_ranks_are_reported_seldom(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(share(meeting.port), 1, [meeting.rank(2)])
    watched.clock.pass_to(TOLD[0] - 0.5)
    assert watched.said == []
    watched.clock.pass_to(TOLD[0] + 1.5)
    assert len(watched.said) == 1
    assert watched.said[0].startswith(
        f"1 of 2 workers is here; MindSpore waits for 1 more at 127.0.0.1, port {meeting.port}"
    )
    assert watched.records == [(watched.said[0],)]
    watched.clock.pass_to(TOLD[1] - 0.5)
    assert len(watched.said) == 1
    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks._LOOK", 10.0)  # each reads tables of the whole machine
    watched.clock.pass_to(2000.0)
    assert len(watched.said) == len(TOLD) and watched.clock.idle


def test_once_all_have_come_nothing_more_is_said(meeting: Meeting) -> None:
    watched = Watched(share(meeting.port), 1, [meeting.rank(1)])
    watched.clock.pass_to(TOLD[0] + 1.5)
    other = meeting.other()
    watched.clock.pass_to(TOLD[0] + 3.5)
    assert watched.said[1:] == ["all 2 are here"] and watched.records[1:] == [("",)]
    other.close()
    watched.clock.pass_to(2000.0)
    assert len(watched.said) == 2 and watched.clock.idle


def test_nothing_is_said_of_ranks_that_come_in_time(meeting: Meeting) -> None:
    watched = Watched(share(meeting.port, size=3), 1, [meeting.rank(1)])
    watched.clock.pass_to(TOLD[0] - 1)
    kept = [meeting.other()]
    watched.clock.pass_to(TOLD[0] + 3)
    assert watched.said == [], "one has just come: the next may be on its way"
    kept.append(meeting.other())
    watched.clock.pass_to(2000.0)
    assert watched.said == [] and watched.records == []


def test_nothing_is_said_while_ours_are_loading(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that has not connected may never want to."""
    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks._LOOK", 10.0)  # each reads tables of the whole machine
    watched = Watched(share(meeting.port, size=4), 2, [meeting.rank(1), 2**22 + 1])
    watched.clock.pass_to(TOLD[-1] + 60.0)
    assert watched.said == []


@pytest.mark.parametrize("record", [RankEnded(1.0, "rank 0", "here", 1, None), LaunchEnded(1.0, Outcome(1, ()))])
def test_a_job_that_ends_is_not_watched(meeting: Meeting, record: Any) -> None:
    watched = Watched(share(meeting.port), 1, [meeting.rank(1)])
    watched.clock.pass_to(TOLD[0] + 1.5)
    watched.watch.observe(record)
    assert watched.clock.idle and watched.records[-1] == ("",)
    watched.clock.pass_to(2000.0)
    assert len(watched.said) == 1


def far(loop: Loop, port: int, told: list[str], monkeypatch: pytest.MonkeyPatch, limit: float = 10.0) -> None:
    """A watch of a command whose scheduler runs elsewhere, until it has told something."""
    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks.TOLD", (0.0,))
    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks._LOOK", 0.01)
    records: list[Any] = []
    observers = Observers(0.0, [records.append], told.append)
    watch(
        Request((AppContext(("x",), np=1),), cluster=ServicePolicy(share=share(port, master=False))),
        loop,
        observers,
        told.append,
    )
    observers.emit(RankStarted, "rank 1", "here", 1)
    observers.emit(AllStarted, 1)
    loop.run(lambda: bool(told), limit)
    observers.emit(LaunchEnded, Outcome(0, ()))
    assert [record.text for record in records if isinstance(record, Waiting)] == [*told, *[""] * bool(told)]


def test_a_scheduler_elsewhere_that_nobody_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told: list[str] = []
        with Loop(VirtualClock()) as loop:
            far(loop, port, told, monkeypatch, limit=1.0)
        assert told == []
    with Loop(VirtualClock()) as loop:
        far(loop, port, told, monkeypatch)
    assert len(told) == 1 and f"not found at 127.0.0.1, port {port}: the connection is refused" in told[0]


def full_server(stack: ExitStack) -> int:
    """The port of a server that accepts nobody, and whose queue is full: calls of it stay unanswered."""
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _ in range(4):
        caller = stack.enter_context(socket.socket())
        caller.setblocking(False)
        caller.connect_ex(server.getsockname())
    port: int = server.getsockname()[1]
    return port


def test_a_scheduler_that_does_not_answer_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another look comes while the first call still waits."""
    place = "mslaunch.launcher.peers.absent_ranks."
    monkeypatch.setattr(f"{place}TOLD", (0.0, 3600.0, 3600.0))
    monkeypatch.setattr(f"{place}_LOOK", 0.01)
    monkeypatch.setattr(f"{place}_PATIENCE", 0.1)
    monkeypatch.setattr(f"{place}connections", lambda port: [])  # without those that fill the queue
    told: list[str] = []
    with ExitStack() as stack, Loop(VirtualClock()) as loop:
        port = full_server(stack)
        before = open_descriptors()
        watched = AbsentRanks(loop, share(port, master=False), 1, told.append, lambda kind, *facts: None)
        watched.observe(AllStarted(0.0, 1))
        loop.run(lambda: False, 0.4)
        watched.observe(LaunchEnded(1.0, Outcome(0, ())))
        assert len(told) == 1 and f"not found at 127.0.0.1, port {port}: it does not answer" in told[0]
        assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_scheduler_to_which_there_is_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call fails at once, and the kernel forgets the error then."""

    class Unreachable(socket.socket):
        def connect_ex(self, address: Any) -> int:
            return errno.EHOSTUNREACH

    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks.socket", Unreachable)
    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks.connections", lambda port: [])  # of other tests
    told: list[str] = []
    with Loop(VirtualClock()) as loop:
        far(loop, 8118, told, monkeypatch)
    assert len(told) == 1 and "not found at 127.0.0.1, port 8118: No route to host" in told[0]


def test_a_scheduler_that_answers_is_called_once_for_each_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our ranks are not connected yet, for instance because they still load; each call disturbs the scheduler."""
    place = "mslaunch.launcher.peers.absent_ranks."
    monkeypatch.setattr(f"{place}TOLD", (0.0, 3600.0))
    monkeypatch.setattr(f"{place}_LOOK", 0.01)
    monkeypatch.setattr(f"{place}connections", lambda port: [])
    calls: list[socket.socket] = []
    looks: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as server, Loop(VirtualClock()) as loop:
        server.setblocking(False)
        loop.reader(server.fileno(), lambda: calls.append(server.accept()[0]))
        port = server.getsockname()[1]
        watched = AbsentRanks(loop, share(port, master=False), 1, pytest.fail, lambda kind, *facts: None)
        look = watched._look
        monkeypatch.setattr(watched, "_look", lambda: (looks.append(loop.now()), look()))
        watched.observe(AllStarted(0.0, 1))
        loop.run(lambda: len(looks) >= 20, 10.0)
        watched.observe(LaunchEnded(1.0, Outcome(0, ())))
        assert (len(calls), len(looks)) == (1, 20)
        calls[0].close()


def test_no_descriptor_is_free_for_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch goes on, and the next look finds out."""
    asked: list[int] = []

    class Scarce(socket.socket):
        def __init__(self, *args: Any) -> None:
            asked.append(1)
            if len(asked) == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            super().__init__(*args)

    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks.socket", Scarce)
    monkeypatch.setattr("mslaunch.launcher.peers.absent_ranks.connections", lambda port: [])
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Loop(VirtualClock()) as loop:
        far(loop, port, told, monkeypatch)
    assert len(told) == 1 and "the connection is refused" in told[0]


def test_which_launches_are_watched() -> None:
    def watched(asked: Share | None, np: int = 1, **more: Any) -> bool:
        observers = Observers(0.0, [], print)
        loop: Any = Clock()
        watch(Request((AppContext(("x",), np=np),), cluster=ServicePolicy(share=asked, **more)), loop, observers, print)
        return bool(observers)

    assert watched(share(8118)) and watched(share(8118, master=False))
    assert not watched(share(8118, size=1)), "all are ours"
    assert watched(share(8118, size=1, master=False)), "the scheduler is not"
    assert not watched(share(8118), simulated=True) and not watched(share(8118, role="scheduler")) and not watched(None)
    torch = share(0, master=False, meeting=29500)
    assert watched(torch) and not watched(torch._replace(first=1)), "torch says itself that it cannot connect"


@pytest.mark.parametrize(
    ("asked", "local", "others", "hosts", "words"),
    [
        (share(8118), 1, 0, (), "1 of 2 workers is here; MindSpore waits for 1 more at 127.0.0.1, port 8118\n"
         "  only commands on this host reach 127.0.0.1; for several hosts end this, and type the same\n"
         "  line on each with --master_addr=10.0.0.5 --master_port=8118 and its own --node_rank (0 here, 1 there)\n"
         "  or name all hosts in one command: -H HOST1,HOST2"),
        (share(8118, address="10.0.0.5"), 1, 0, (), "1 of 2 workers is here; MindSpore waits for 1 more at 10.0.0.5, "
         "port 8118\n  type the same line on the other host with --master_addr=10.0.0.5 --master_port=8118 and "
         "--node_rank=1\n  or name all hosts in one command: -H HOST1,HOST2"),
        (share(8118, 16, 8, "10.0.0.5"), 4, 4, ("10.0.0.6", "127.0.0.1"), "8 of 16 workers are here, some of them on "
         "10.0.0.6; MindSpore waits for 8 more at 10.0.0.5, port 8118\n  type the same line on each host that is "
         "missing with --master_addr=10.0.0.5 --master_port=8118 and its own --node_rank\n"
         "  or name all hosts in one command: -H HOST1,HOST2"),
        (share(8118, 2, None, "10.0.0.5"), 1, 0, (), "1 of 2 workers is here; MindSpore waits for 1 more at 10.0.0.5, "
         "port 8118\n  type the same line on the other host with --master_addr=10.0.0.5 --master_port=8118\n"
         "  or name all hosts in one command: -H HOST1,HOST2"),
        (share(0, 4, 0, "10.0.0.5", meeting=29500), 2, 0, (), "2 of 4 ranks are here; they wait for 2 more at "
         "10.0.0.5, port 29500\n  type the same line on the other host with --master-addr=10.0.0.5 --master-port=29500 "
         "and --node-rank=1\n  or name all hosts in one command: -H HOST1,HOST2"),
        (share(8118, 2, 0, "10.0.0.5", by_operator=True), 1, 0, (), "1 of 2 workers is here; MindSpore waits for 1 "
         "more at 10.0.0.5, port 8118\n  other pods have to start them: kubectl get pods shows whether they run"),
    ],
)  # fmt: skip
def test_texts(asked: Share, local: int, others: int, hosts: tuple[str, ...], words: str) -> None:
    assert absent_text(asked, local, others, hosts, "10.0.0.5") == words


def test_text_of_a_scheduler_elsewhere() -> None:
    text = unanswered_text(share(8118, address="10.0.0.9", master=False), "it does not answer")
    assert text.startswith("MindSpore's scheduler is not found at 10.0.0.9, port 8118: it does not answer; ")
    assert "--node_rank=0" in text
    assert "kubectl" in unanswered_text(share(8118, by_operator=True), "it does not answer")
