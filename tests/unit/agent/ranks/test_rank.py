"""Ranks and their streams, with real, tiny processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest
from open_descriptors import open_descriptors
from virtual_time import StillClock

from mslaunch.agent.ranks.pmi_socket import PmiSocket
from mslaunch.agent.ranks.rank import ProcessEvents, RankProcess, open_fds
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.runtime import program_streams
from mslaunch.runtime.fd_writer import Writer
from mslaunch.runtime.loop import Loop


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.ends = 0
        self.exits: list[tuple[int | None, int | None]] = []
        self.taken = 0

    def output(self, kind: int, rank: int, data: bytes) -> None:
        self.data += data
        self.ends += not data

    def exited(self, rank: int, status: ExitStatus) -> None:
        self.exits.append((status.code, status.signal))

    def stdin_taken(self, rank: int, size: int) -> None:
        self.taken += size


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


def start(loop: Loop, sink: Sink, script: str, stdin: bool = False, pty: bool = False) -> RankProcess:
    rank = RankProcess(0, loop, ProcessEvents(sink.output, sink.exited, sink.stdin_taken))
    fds = open_fds(stdin, pty=pty)
    rank.start("/bin/sh", ["sh", "-c", script], dict(os.environ), fds)
    return rank


def test_no_descriptor_is_kept_when_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_stream(pty: bool, size: int = 0) -> tuple[int, int]:
        if opened:
            raise OSError(errno.EMFILE, "Too many open files")
        opened.extend(os.pipe())
        return opened[0], opened[1]

    monkeypatch.setattr("mslaunch.agent.ranks.rank.open_stream", open_stream)
    before = open_descriptors()
    with pytest.raises(OSError, match="Too many"):
        open_fds(stdin=True)
    assert os.listdir("/proc/self/fd") == before


def test_a_silent_stream_is_timed_only_while_it_is_read(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow launcher may pause its agents for longer than the limit for orphans that hold a stream."""
    sink = Sink()
    rank = start(loop, sink, "head -c 50000 /dev/zero")
    rank._streams.seconds = 0.05
    loop.run(lambda: bool(sink.exits))
    due: list[bool] = []
    loop.after(0.2, lambda: due.append(True))
    loop.run(lambda: bool(due))
    rank.watch(True)
    loop.run(lambda: rank.over)
    assert (len(sink.data), sink.ends, sink.exits) == (50000, 2, [(0, None)])


def test_a_stream_held_by_an_orphan_is_given_up(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    rank = start(loop, sink, "echo here; sleep 30 & echo $!")
    rank._streams.seconds = 0.1
    rank.watch(True)
    loop.run(lambda: rank.over)
    word, orphan = sink.data.split()
    os.kill(int(orphan), 9)
    assert (word, sink.ends) == (b"here", 2)


@pytest.mark.parametrize(("pty", "lines"), [(False, 10000), (True, 500)])
def test_a_stream_is_read_once_more_before_it_is_given_up(loop: Loop, pty: bool, lines: int) -> None:
    """On a busy host the limit may be over before the agent has read at all; the output must not be lost."""
    sink = Sink()
    rank = start(loop, sink, f"seq {lines}; sleep 30 & echo $!", pty=pty)
    rank._streams.seconds = 0.0
    loop.run(lambda: bool(sink.exits))
    rank.watch(True)
    loop.run(lambda: rank.over)
    *numbers, orphan = map(int, sink.data.split() or [0])
    if orphan:
        os.kill(orphan, 9)
    assert (numbers, sink.ends) == (list(range(1, lines + 1)), 2)


def test_a_retired_rank_is_over_soon() -> None:
    """An orphan that goes on writing does not delay the restart; what it writes until then is forwarded."""
    clock, sink, retired = StillClock(), Sink(), list[bool]()
    with Loop(clock) as loop:
        rank = start(loop, sink, "(while echo here; do sleep 0.01; done) &")
        rank.watch(True)
        loop.run(lambda: bool(sink.exits))
        rank.retire(lambda: retired.append(rank.over))
        clock.time += program_streams.DRAIN_ENDING * 0.9
        loop.run(lambda: sink.data.count(b"here\n") > 1)
        assert not retired
        clock.time += program_streams.DRAIN_ENDING * 0.1
        loop.run(lambda: bool(retired))
    assert (retired, sink.ends) == ([True], 2)


def test_a_rank_that_is_over_is_retired_at_once(loop: Loop) -> None:
    sink, retired = Sink(), list[bool]()
    rank = start(loop, sink, "exit 3")
    rank.watch(True)
    loop.run(lambda: rank.over)
    rank.retire(lambda: retired.append(True))
    assert not retired  # the callback comes from the loop, not from within the call
    loop.run(lambda: bool(retired))


def test_a_rank_that_may_not_be_signalled(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    rank = start(loop, sink, "read x", stdin=True)

    def refuse(pid: int, signum: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    rank.signal(15)
    rank.watch(True)
    rank.feed(b"")
    loop.run(lambda: rank.over)
    assert sink.exits == [(1, None)]


def test_input_that_a_rank_will_never_read_counts_as_taken(loop: Loop) -> None:
    """Otherwise the window of --stdin all stays full, and the other ranks get nothing."""
    sink = Sink()
    rank = start(loop, sink, "exec <&-; exec sleep 30", stdin=True)
    rank.watch(True)
    rank.feed(b"x" * 300_000)
    loop.run(lambda: sink.taken == 300_000)
    rank.signal(9)
    loop.run(lambda: rank.over)


def test_all_bytes_count_as_taken_when_the_reader_closes(loop: Loop) -> None:
    reader, writer = os.pipe()
    taken: list[int] = []
    broken: list[OSError] = []
    outbox = Writer(loop, writer, broken.append, taken.append)
    outbox.send(b"x" * 300_000)
    os.close(reader)
    loop.run(lambda: bool(broken))
    os.close(writer)
    assert sum(taken) == 300_000


# --- the exit comes after what the rank has sent on its PMI socket


class Engine:
    """Receives the ranks' bytes once `here` is set, and records the order of events."""

    def __init__(self, loop: Loop) -> None:
        self.here = False
        self.history: list[str] = []
        self.socket = PmiSocket(loop, 0, self.received)

    def received(self, rank: int, data: bytes) -> bool:
        if self.here or not data:
            self.history.append(data.decode() if len(data) < 100 else "much")
        return self.here or not data

    def exited(self, rank: int, status: ExitStatus) -> None:
        self.history.append(f"exit {status.code}")

    def start(self, loop: Loop, script: str) -> RankProcess:
        process = RankProcess(0, loop, ProcessEvents(lambda kind, rank, data: None, self.exited))
        process.start("/bin/sh", ["sh", "-c", script], dict(os.environ), open_fds(), pmi=self.socket)
        self.socket.close_child()
        process.watch(True)
        return process


def wait(loop: Loop, seconds: float) -> None:
    due: list[bool] = []
    loop.after(seconds, lambda: due.append(True))
    loop.run(lambda: bool(due))


@pytest.fixture
def engine(loop: Loop) -> Engine:
    return Engine(loop)


def test_the_exit_comes_after_the_last_pmi_request(loop: Loop, engine: Engine) -> None:
    engine.here = True
    process = engine.start(loop, "printf abort >&3; exit 7")
    loop.run(lambda: process.over)
    assert engine.history == ["abort", "", "exit 7"]


def test_the_exit_waits_for_the_engine(loop: Loop, engine: Engine) -> None:
    process = engine.start(loop, "printf abort >&3; exit 7")
    loop.run(lambda: not process.running)
    wait(loop, 0.05)
    assert engine.history == [] and not process.over
    engine.here = True
    engine.socket.resume()
    assert engine.history == ["abort", "", "exit 7"]
    loop.run(lambda: process.over)


def test_the_exit_waits_for_the_engine_with_a_limit(loop: Loop, engine: Engine) -> None:
    process = engine.start(loop, "printf abort >&3; exit 7")
    process._streams.seconds = 0.05
    loop.run(lambda: process.over)
    assert engine.history == ["", "exit 7"]
    engine.here = True
    engine.socket.resume()
    assert engine.history == ["", "exit 7"]


def test_the_limit_is_shorter_while_the_job_is_being_ended(
    loop: Loop, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_streams, "DRAIN_ENDING", 0.05)
    process = engine.start(loop, "printf abort >&3; exit 7")
    loop.run(lambda: not process.running)
    process.hurry()
    loop.run(lambda: process.over)
    assert engine.history == ["", "exit 7"]


def test_the_exit_of_a_rank_without_pmi_does_not_wait(loop: Loop, engine: Engine) -> None:
    process = engine.start(loop, "exit 7")
    loop.run(lambda: not process.running)
    assert engine.history == ["", "exit 7"]


@pytest.mark.parametrize("here", [True, False])
def test_an_orphan_that_floods_the_pmi_socket_is_cut_off(loop: Loop, engine: Engine, here: bool) -> None:
    """No more is read than the socket held when the rank ended."""
    engine.here = here
    process = engine.start(loop, "yes >&3 2>/dev/null & exit 7")
    loop.run(lambda: not process.running)
    engine.here = True
    engine.socket.resume()
    loop.run(lambda: process.over)
    assert engine.history[-1] == "exit 7" and engine.history.count("exit 7") == 1


def test_a_rank_that_does_not_read_its_replies_is_cut_off(loop: Loop, engine: Engine) -> None:
    engine.here = True
    process = engine.start(loop, "exec sleep 60")
    engine.socket.send(b"x" * (1 << 25))
    assert engine.socket.over and engine.history == [""]
    process.signal(9)
    loop.run(lambda: process.over)
    assert engine.history == ["", "exit None"]
