"""What a host sends reaches the launcher in order and whole, and widens the window."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mslaunch.transport.ssh.channel_output import ChannelOutput
from mslaunch.transport.ssh.paramiko_transport import WINDOW

Ends = tuple[socket.socket, socket.socket]


class _RecordingTransport:
    """Notes what is sent to the host."""

    def __init__(self) -> None:
        self.sent: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def _send_user_message(self, message: Any) -> None:
        self.sent.put(message.asbytes())


class _OpenChannel:
    """What `ChannelOutput` asks of a channel."""

    remote_chanid = 7

    def __init__(self) -> None:
        self.transport = _RecordingTransport()


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_packets_wait_until_no_more_have_come_and_go_together(ends: Ends) -> None:
    near, far = ends
    near.setblocking(False)
    output = ChannelOutput(_OpenChannel(), far)
    output.feed(b"one ")
    output.feed(b"two ")
    with pytest.raises(BlockingIOError):
        near.recv(100)
    output.flush()
    output.flush()
    assert near.recv(100) == b"one two "


def test_the_end_brings_what_is_left(ends: Ends) -> None:
    near, far = ends
    output = ChannelOutput(_OpenChannel(), far)
    output.feed(b"last")
    output.close()
    output.wait()  # is over at once
    assert near.recv(100) == b"last"


def test_the_window_is_widened_by_what_was_taken(ends: Ends) -> None:
    near, far = ends
    channel = _OpenChannel()
    output = ChannelOutput(channel, far)
    widening = threading.Thread(target=output.wait)
    widening.start()
    size = 0
    while size < WINDOW // 4:
        output.feed(bytes(1 << 15))
        output.flush()
        size += len(near.recv(1 << 15, socket.MSG_WAITALL))
    assert channel.transport.sent.get(timeout=30) == struct.pack(">BII", 93, 7, size)
    output.close()
    widening.join()


def test_what_a_launcher_that_has_gone_does_not_take_widens_the_window_too(ends: Ends) -> None:
    near, far = ends
    near.close()
    channel = _OpenChannel()
    output = ChannelOutput(channel, far)
    widening = threading.Thread(target=output.wait)
    widening.start()
    output.feed(bytes(WINDOW // 4))
    output.flush()
    assert channel.transport.sent.get(timeout=30) == struct.pack(">BII", 93, 7, WINDOW // 4)
    output.close()
    widening.join()
