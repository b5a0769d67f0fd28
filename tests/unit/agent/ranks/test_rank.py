"""Ranks and their streams against real, tiny processes: what is read late is not lost, and who may not be signalled."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mslaunch.agent.ranks.pipes import FdPlacement, open_fds
from mslaunch.agent.ranks.rank import RankProcess
from mslaunch.datamodel.exit_status import ExitStatus
from mslaunch.runtime import output_stream
from mslaunch.runtime.loop import Loop
from mslaunch.runtime.writer import Writer


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
    null = os.open("/dev/null", os.O_RDONLY)
    rank = RankProcess(0, loop, sink)
    rank.start(
        "/bin/sh", ["sh", "-c", script], dict(os.environ), open_fds(null, stdin, False, pty, 1), FdPlacement(1, null)
    )
    os.close(null)
    return rank


def test_silence_counts_only_while_we_listen(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that does not keep up pauses its agents for longer than an orphan is waited for."""
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


def test_an_orphan_that_holds_a_stream_is_given_up(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    rank = start(loop, sink, "echo here; sleep 30 & echo $!")
    rank._streams.seconds = 0.1
    rank.watch(True)
    loop.run(lambda: rank.over)
    word, orphan = sink.data.split()
    os.kill(int(orphan), 9)
    assert (word, sink.ends) == (b"here", 2)


@pytest.mark.parametrize(("pty", "lines"), [(False, 10000), (True, 500)])
def test_who_is_given_up_is_read_once_more(loop: Loop, pty: bool, lines: int) -> None:
    """Its time may be up before we have come to read at all, on a busy host: what it said is not lost."""
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


def test_who_is_retired_is_over_soon(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphan that goes on talking does not hold the place of the next one; what it says until then is heard."""
    monkeypatch.setattr(output_stream, "DRAIN_ENDING", 0.1)
    sink, told = Sink(), list[bool]()
    rank = start(loop, sink, "(while echo here; do sleep 0.01; done) &")
    rank.watch(True)
    loop.run(lambda: bool(sink.exits))
    rank.retire(lambda: told.append(rank.over))
    assert not told
    loop.run(lambda: bool(told))
    assert (told, sink.ends) == ([True], 2) and b"here\n" in sink.data


def test_who_is_over_is_retired_at_once(loop: Loop) -> None:
    sink, told = Sink(), list[bool]()
    rank = start(loop, sink, "exit 3")
    rank.watch(True)
    loop.run(lambda: rank.over)
    rank.retire(lambda: told.append(True))
    assert not told  # not from within the call
    loop.run(lambda: bool(told))


def test_a_rank_that_is_not_ours_to_signal(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_a_rank_will_never_read_counts_as_taken(loop: Loop) -> None:
    """Else the window of --stdin all stays full, and the others starve."""
    sink = Sink()
    rank = start(loop, sink, "exec <&-; exec sleep 30", stdin=True)
    rank.watch(True)
    rank.feed(b"x" * 300_000)
    loop.run(lambda: sink.taken == 300_000)
    rank.signal(9)
    loop.run(lambda: rank.over)


def test_progress_tells_of_all_bytes_when_the_reader_goes(loop: Loop) -> None:
    reader, writer = os.pipe()
    told: list[int] = []
    broken: list[OSError] = []
    outbox = Writer(loop, writer, broken.append, told.append)
    outbox.send(b"x" * 300_000)
    os.close(reader)
    loop.run(lambda: bool(broken))
    os.close(writer)
    assert sum(told) == 300_000
