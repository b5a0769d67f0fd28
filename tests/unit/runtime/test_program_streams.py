"""When an output stream passes on a piece of a line, with a loop that the test drives."""

from __future__ import annotations

import os

import pytest
from virtual_time import VirtualClock

from mslaunch.runtime.loop import Loop
from mslaunch.runtime.program_streams import DRAIN_ENDING, JOIN, OutputStream, StreamGroup, open_stream


class FakeTimer:
    def __init__(self, callback):
        self.callback = callback
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class FakeLoop:
    """Callbacks are called by the test."""

    def __init__(self):
        self.readers = {}
        self.timers = []
        self.time = 100.0

    def now(self):
        return self.time

    def reader(self, fd, callback):
        self.readers[fd] = callback

    def after(self, seconds, callback):
        self.timers.append(FakeTimer(callback))
        return self.timers[-1]


class Bench:
    """One stream: `write` is what the program does, `fire` the last timer set."""

    def __init__(self):
        self.loop = FakeLoop()
        self.said: list[bytes] = []
        self.reader, self.writer = open_stream(False)
        self.stream = OutputStream(self.loop, self.reader, self.said.append)
        self.stream.watch(True)

    def write(self, data):
        os.write(self.writer, data)
        self.loop.readers[self.reader]()

    def fire(self):
        self.loop.timers[-1].callback()


@pytest.fixture
def bench():
    made = Bench()
    yield made
    os.close(made.writer)
    made.stream.close()


def test_whole_lines_go_at_once(bench):
    bench.write(b"one\ntwo\n")
    assert bench.said == [b"one\ntwo\n"]
    assert bench.loop.timers == []


def test_a_line_in_two_pieces_goes_as_one(bench):
    bench.write(b"one")
    bench.write(b"\n")
    assert bench.said == [b"one\n"]


def test_half_a_line_goes_when_its_time_has_come(bench):
    bench.write(b"one\nhalf")
    assert bench.said == [b"one\n"]
    bench.loop.time += JOIN
    bench.fire()
    assert bench.said == [b"one\n", b"half"]


def test_a_timer_of_an_older_line_does_not_tear_a_new_one(bench):
    """The rest of the first came in time, and a second has begun since."""
    bench.write(b"first")
    bench.loop.time += JOIN * 0.9
    bench.write(b"\nsecond")
    bench.loop.time += JOIN * 0.2
    bench.fire()
    assert bench.said == [b"first\n"]
    bench.write(b"\n")
    assert bench.said == [b"first\n", b"second\n"]


def test_many_pieces_of_one_line_do_not_wait_for_ever(bench):
    bench.write(b"a")
    for _ in range(12):
        bench.loop.time += JOIN / 10
        bench.write(b"a")
    bench.fire()
    assert bench.said == [b"a" * 13]


def test_a_long_line_is_not_kept(bench):
    bench.write(b"x" * 60_000)
    bench.write(b"x" * 60_000)
    assert sum(map(len, bench.said)) == 120_000


def test_the_end_brings_what_is_left(bench):
    bench.write(b"one\nhalf")
    bench.stream.close()
    assert bench.said == [b"one\n", b"half", b""]
    assert bench.loop.timers[-1].cancelled


def test_a_slow_reader_does_not_prolong_the_end_of_a_rank_whose_orphan_prints_for_ever() -> None:
    """`mslaunch ... | less`: the launcher pauses its agents again and again."""
    clock = VirtualClock()
    with Loop(clock) as loop:
        printed: list[bytes] = []
        group = StreamGroup(loop, lambda key, data: printed.append(data))
        reader, orphan = open_stream(False)
        group.add(1, reader)
        group.watch(True)
        group.program_ended()
        group.hurry(bounded=True)
        began = clock.time
        while not group.over and clock.time < began + 60:
            os.write(orphan, b"still here\n")
            group.watch(False)
            loop.run(lambda: False, 0.3)
            group.watch(True)
            loop.run(lambda: group.over, 0.1)
        os.close(orphan)
    assert clock.time - began <= DRAIN_ENDING + 0.4
    assert printed == [b"still here\n"] * 2 + [b""]
