"""The outbox: every byte once and in order through a pipe that takes few of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.runtime.fd_writer import Writer
from mslaunch.runtime.loop import Loop

_F_SETPIPE_SZ = 1031


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9000), min_size=1, max_size=80), min_size=1, max_size=6))
def test_bytes_arrive_in_order(sends: list[list[int]]) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, _F_SETPIPE_SZ, 4096)
    progress: list[int] = []
    broken: list[OSError] = []
    received = b""
    with Loop() as loop:
        outbox = Writer(loop, writer, broken.append, progress.append)
        sent = b""
        for at, sizes in enumerate(sends):
            pieces = [bytes([(at + number) % 251]) * size for number, size in enumerate(sizes)]
            outbox.send(*pieces)
            sent += b"".join(pieces)
            assert outbox.pending + sum(progress) == len(sent)

        def read() -> None:
            nonlocal received
            received += os.read(reader, 3000)

        loop.reader(reader, read)
        loop.run(lambda: len(received) >= len(sent) and not outbox.pending)
        loop.reader(reader, None)
    assert received == sent
    assert sum(progress) == len(sent) and all(step > 0 for step in progress)
    assert broken == []
    os.close(reader)
    os.close(writer)


def test_a_reader_that_goes_is_told_once(loop: Loop) -> None:
    reader, writer = os.pipe()
    broken: list[OSError] = []
    outbox = Writer(loop, writer, broken.append)
    outbox.send(b"x" * (1 << 20))
    assert outbox.pending
    os.close(reader)
    loop.run(lambda: bool(broken))
    outbox.send(b"more")
    assert len(broken) == 1 and outbox.closed and outbox.pending == 0
    outbox.close()
    os.close(writer)


def test_closed_takes_nothing(loop: Loop) -> None:
    reader, writer = os.pipe()
    outbox = Writer(loop, writer, lambda error: None)
    outbox.send(b"ab")
    loop.run(lambda: not outbox.pending)
    outbox.close()
    outbox.send(b"cd")
    os.close(writer)
    assert os.read(reader, 9) == b"ab" and os.read(reader, 9) == b""
    os.close(reader)


def test_progress_may_send(loop: Loop) -> None:
    reader, writer = os.pipe()
    left = [b"b", b"c"]
    outbox = Writer(loop, writer, lambda error: None, lambda size: outbox.send(left.pop(0)) if left else None)
    outbox.send(b"a")
    loop.run(lambda: not outbox.pending and not left)
    assert os.read(reader, 9) == b"abc"
    os.close(reader)
    os.close(writer)
