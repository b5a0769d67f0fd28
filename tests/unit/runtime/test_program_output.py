"""When an output stream passes on a piece of a line, with a loop that the test drives."""

from __future__ import annotations

import os
import time

import pytest

from mslaunch.runtime.program_output import JOIN, OutputStream, open_stream


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
def bench(monkeypatch):
    made = Bench()
    made.now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
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
    bench.now += JOIN
    bench.fire()
    assert bench.said == [b"one\n", b"half"]


def test_a_timer_of_an_older_line_does_not_tear_a_new_one(bench):
    """The rest of the first came in time, and a second has begun since."""
    bench.write(b"first")
    bench.now += JOIN * 0.9
    bench.write(b"\nsecond")
    bench.now += JOIN * 0.2
    bench.fire()
    assert bench.said == [b"first\n"]
    bench.write(b"\n")
    assert bench.said == [b"first\n", b"second\n"]


def test_many_pieces_of_one_line_do_not_wait_for_ever(bench):
    bench.write(b"a")
    for _ in range(12):
        bench.now += JOIN / 10
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
