"""What a host sends reaches the launcher in order and whole, and widens the window."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.transport.ssh.channel_output import ChannelOutput, _send_all
from mslaunch.transport.ssh.paramiko_transport import WINDOW

Ends = tuple[socket.socket, socket.socket]


class _RecordingTransport:
    """Notes what is sent to the host."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.clear_to_send = threading.Event()  # not set: keys are being exchanged
        self.clear_to_send.set()

    def _send_message(self, message: Any) -> None:
        self.sent.append(message.asbytes())


class _OpenChannel:
    """What `ChannelOutput` asks of a channel."""

    remote_chanid = 7

    def __init__(self) -> None:
        self.transport = _RecordingTransport()


def widened(size: int) -> bytes:
    return struct.pack(">BII", 93, 7, size)


def nothing() -> None:
    pass


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_packets_wait_until_no_more_have_come_and_go_together(ends: Ends) -> None:
    near, far = ends
    near.setblocking(False)
    output = ChannelOutput(_OpenChannel(), far, nothing)
    output.feed(b"one ")
    output.feed(b"two ")
    with pytest.raises(BlockingIOError):
        near.recv(100)
    output.flush()
    output.flush()
    assert near.recv(100) == b"one two "


def test_the_end_brings_what_is_left_and_is_told_after_that(ends: Ends) -> None:
    near, far = ends
    came = []
    output = ChannelOutput(_OpenChannel(), far, lambda: came.append(near.recv(100)))
    output.feed(b"last")
    assert not output.ended
    output.close()
    assert output.ended
    assert came == [b"last"]


def test_the_window_is_widened_by_what_was_taken(ends: Ends) -> None:
    near, far = ends
    channel = _OpenChannel()
    output = ChannelOutput(channel, far, nothing)
    size = 0
    while size < WINDOW // 4:
        assert channel.transport.sent == []
        output.feed(bytes(1 << 15))
        output.flush()
        size += len(near.recv(1 << 15, socket.MSG_WAITALL))
    assert channel.transport.sent == [widened(size)]


def test_while_keys_are_exchanged_the_window_waits(ends: Ends) -> None:
    """Nothing else may be sent then, and whoever waited for the end of it would wait for himself."""
    channel = _OpenChannel()
    output = ChannelOutput(channel, ends[1], nothing)
    output.count(WINDOW // 2)
    channel.transport.clear_to_send.clear()
    output.flush()
    assert channel.transport.sent == []
    channel.transport.clear_to_send.set()
    output.flush()
    output.flush()
    assert channel.transport.sent == [widened(WINDOW // 2)]


def test_what_a_launcher_that_has_gone_does_not_take_widens_the_window_too(ends: Ends) -> None:
    near, far = ends
    near.close()
    channel = _OpenChannel()
    output = ChannelOutput(channel, far, nothing)
    output.feed(bytes(WINDOW // 4))
    output.flush()
    assert channel.transport.sent == [widened(WINDOW // 4)]


class _ShortSink:
    """A socket that takes a part of what it is given in one call."""

    def __init__(self, takes: int) -> None:
        self.got = b""
        self._takes = takes

    def sendmsg(self, parts: list[bytes]) -> int:
        assert len(parts) <= 1024  # IOV_MAX
        taken = b"".join(parts)[: self._takes]
        self.got += taken
        return len(taken)

    def sendall(self, data: memoryview) -> None:
        self.got += data


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=200), st.integers(0, 2000))
def test_all_is_sent_once_and_in_order_however_little_is_taken(parts: list[bytes], takes: int) -> None:
    sink = _ShortSink(takes)
    _send_all(sink, parts)  # type: ignore[arg-type]
    assert sink.got == b"".join(parts)
