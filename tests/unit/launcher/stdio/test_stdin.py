"""Standard input: the ranks that get it, and when the launcher stops reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mslaunch.launcher.stdio.stdin import WINDOW, Stdin
from mslaunch.runtime.loop import Loop


class StdinLab:
    """A pipe as input, and the bytes sent to each rank."""

    def __init__(self, loop: Loop, *targets: int) -> None:
        self.loop = loop
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.sent: dict[int, list[bytes]] = {rank: [] for rank in targets}
        self.stdin = Stdin(loop, self.reader, targets, lambda rank, data: self.sent[rank].append(data))

    def settle(self) -> None:
        """Run the loop eight times, so that it reads all that is available."""
        turn(self.loop, 8)

    def write_all_that_fits(self) -> int:
        size = 0
        while True:
            try:
                size += os.write(self.writer, b"x" * 65536)
            except BlockingIOError:
                return size
            self.settle()

    def received(self, rank: int) -> int:
        return sum(map(len, self.sent[rank]))


def turn(loop: Loop, times: int) -> None:
    """Run the loop `times` times; an unread byte makes each run return at once."""
    reader, writer = os.pipe()
    os.write(writer, b"x")
    turns: list[int] = []
    loop.reader(reader, lambda: turns.append(1))
    loop.run(lambda: len(turns) >= times)
    loop.reader(reader, None)
    os.close(reader)
    os.close(writer)


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


def test_bytes_and_the_end_go_to_each_target(loop: Loop) -> None:
    lab = StdinLab(loop, 0, 2)
    lab.stdin.resume()
    os.write(lab.writer, b"abc")
    loop.run(lambda: bool(lab.sent[2]))
    os.close(lab.writer)
    loop.run(lambda: lab.sent[2][-1] == b"")
    assert lab.sent == {0: [b"abc", b""], 2: [b"abc", b""]}
    lab.settle()
    assert lab.sent[0].count(b"") == 1
    os.close(lab.reader)


def test_nothing_is_read_before_resume(loop: Loop) -> None:
    lab = StdinLab(loop, 0)
    os.write(lab.writer, b"abc")
    lab.settle()
    assert lab.sent == {0: []}
    lab.stdin.resume()
    lab.settle()
    assert lab.sent == {0: [b"abc"]}


def test_at_most_a_window_is_under_way_to_the_slowest(loop: Loop) -> None:
    lab = StdinLab(loop, 0, 1)
    lab.stdin.resume()
    written = lab.write_all_that_fits()
    assert WINDOW <= lab.received(0) < WINDOW + 65536
    assert written > lab.received(0)
    before = lab.received(0)
    lab.stdin.taken(0, before)
    lab.settle()
    assert lab.received(0) == before, "rank 1 has not read yet"
    lab.stdin.taken(1, before)
    lab.settle()
    assert lab.received(0) > before


def test_a_rank_that_ends_does_not_hold_up_the_others(loop: Loop) -> None:
    lab = StdinLab(loop, 0, 1)
    lab.stdin.resume()
    lab.write_all_that_fits()
    before = lab.received(0)
    lab.stdin.taken(0, before)
    lab.stdin.rank_ended(1)
    lab.settle()
    assert lab.received(0) > before == lab.received(1)
    lab.stdin.taken(1, 5)
    lab.stdin.rank_ended(1)


def test_input_is_left_unread_once_the_last_reader_has_ended(loop: Loop) -> None:
    lab = StdinLab(loop, 0)
    lab.stdin.resume()
    lab.stdin.rank_ended(0)
    os.write(lab.writer, b"for the next command")
    lab.settle()
    lab.stdin.resume()
    lab.settle()
    assert lab.sent == {0: []}
    assert os.read(lab.reader, 99) == b"for the next command"


def test_stop_is_final(loop: Loop) -> None:
    lab = StdinLab(loop, 0)
    lab.stdin.resume()
    lab.stdin.stop()
    lab.stdin.resume()
    os.write(lab.writer, b"abc")
    lab.settle()
    assert lab.sent == {0: []}


def test_nothing_is_read_without_a_reader(loop: Loop) -> None:
    lab = StdinLab(loop)
    lab.stdin.resume()
    os.write(lab.writer, b"abc")
    lab.settle()
    assert os.read(lab.reader, 9) == b"abc"


def test_a_regular_file_is_read_to_its_end(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"y" * 100000)
    fd = os.open(tmp_path / "in", os.O_RDONLY)
    sent: list[bytes] = []
    Stdin(loop, fd, [0], lambda rank, data: sent.append(data)).resume()
    loop.run(lambda: bool(sent) and sent[-1] == b"")
    assert b"".join(sent) == b"y" * 100000
    os.close(fd)


def test_a_closed_standard_input_counts_as_empty(loop: Loop) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    sent: list[tuple[int, bytes]] = []
    stdin = Stdin(loop, reader, [0, 1], lambda rank, data: sent.append((rank, data)))
    assert sent == [], "an agent that has no plan yet drops it: the end must come after the start"
    stdin.resume()
    loop.run(lambda: len(sent) >= 2)
    assert sent == [(0, b""), (1, b"")]


def test_a_terminal_is_not_read_in_the_background(loop: Loop) -> None:
    """Reading from a terminal that is not the controlling one might stop the launcher (SIGTTIN)."""
    controller, terminal = os.openpty()
    sent: list[bytes] = []
    stdin = Stdin(loop, terminal, [0], lambda rank, data: sent.append(data))
    os.write(controller, b"typed\n")
    stdin.resume()
    turn(loop, 8)
    assert sent == []
    os.close(controller)
    os.close(terminal)
