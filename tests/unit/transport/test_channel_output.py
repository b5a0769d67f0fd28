"""What a host sends reaches the launcher in order and whole, and widens the window."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.transport.ssh.channel_output import ChannelOutput, _sent_now
from mslaunch.transport.ssh.paramiko_transport import WINDOW

Ends = tuple[socket.socket, socket.socket]


def nothing() -> None:
    pass


class _RecordingTransport:
    """Notes what is sent to the host."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.clear_to_send = threading.Event()  # not set: keys are being exchanged
        self.clear_to_send.set()
        self.writing = threading.RLock()
        self.packetizer = SimpleNamespace(_Packetizer__write_lock=self.writing)
        self.room = True
        self.sock = SimpleNamespace(has_room=lambda: self.room)
        self.after_send: Callable[[], None] = nothing

    def is_active(self) -> bool:
        return True

    def _send_message(self, message: Any) -> None:
        with self.writing:
            self.sent.append(message.asbytes())

    def _send_user_message(self, message: Any) -> None:
        self._send_message(message)
        self.after_send()

    def widened_by(self) -> int:
        """In all."""
        return sum(int.from_bytes(text[5:], "big") for text in self.sent)


class _OpenChannel:
    """What `ChannelOutput` asks of a channel."""

    remote_chanid = 7

    def __init__(self) -> None:
        self.transport = _RecordingTransport()


def widened(size: int) -> bytes:
    return struct.pack(">BII", 93, 7, size)


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


def test_who_reads_waits_for_nobody_who_sends(ends: Ends) -> None:
    """A ProxyCommand may read nothing until we have read what it writes."""
    channel = _OpenChannel()
    transport = channel.transport
    output = ChannelOutput(channel, ends[1], nothing)

    def read_twice() -> None:
        for _ in range(2):
            output.count(WINDOW // 4)
            output.flush()

    with transport.writing:
        reading = threading.Thread(target=read_twice)
        reading.start()
        reading.join(10)
        assert not reading.is_alive()
        assert transport.sent == []
    _wait_until(lambda: transport.widened_by() == WINDOW // 2)


def test_where_sending_would_wait_another_thread_does_it(ends: Ends) -> None:
    channel = _OpenChannel()
    output = ChannelOutput(channel, ends[1], nothing)
    channel.transport.room = False
    senders: list[threading.Thread] = []
    channel.transport.after_send = lambda: senders.append(threading.current_thread())
    output.count(WINDOW // 2)
    output.flush()
    _wait_until(lambda: bool(senders))
    assert channel.transport.sent == [widened(WINDOW // 2)]
    assert senders[0] is not threading.current_thread()


def test_what_falls_due_while_another_thread_sends_is_sent_as_well(ends: Ends) -> None:
    """The host may have used its window up, so that nothing more comes to remind us."""
    channel = _OpenChannel()
    transport = channel.transport
    output = ChannelOutput(channel, ends[1], nothing)
    transport.room = False

    def more_comes() -> None:
        transport.after_send = nothing
        output.count(WINDOW // 2)
        output.flush()

    transport.after_send = more_comes
    output.count(WINDOW // 2)
    output.flush()
    _wait_until(lambda: transport.widened_by() == WINDOW)


def test_without_a_thread_who_reads_sends_it(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    channel = _OpenChannel()
    output = ChannelOutput(channel, ends[1], nothing)
    channel.transport.room = False
    monkeypatch.setattr(threading.Thread, "start", refuse)
    output.count(WINDOW // 2)
    output.flush()
    assert channel.transport.sent == [widened(WINDOW // 2)]


def _wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        select.select([], [], [], 0.001)


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


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=200), st.integers(1, 2000))
def test_all_is_sent_once_and_in_order_however_little_is_taken(parts: list[bytes], takes: int) -> None:
    sink = _ShortSink(takes)
    assert _sent_now(sink, parts) == []  # type: ignore[arg-type]
    assert sink.got == b"".join(parts)


def test_a_launcher_that_lets_the_host_wait_does_not_hold_up_the_thread_that_reads_it(ends: Ends) -> None:
    """That thread hears when the host takes more; what waits is bounded by the window, and comes in order."""
    near, far = ends
    told: list[bytes] = []
    output = ChannelOutput(_OpenChannel(), far, lambda: told.append(b"over"))
    sent = b""
    while len(sent) < WINDOW:
        packet = bytes([len(sent) >> 15]) * (1 << 15)
        output.feed(packet)
        output.flush()
        sent += packet
    assert 0 < len(output) <= WINDOW
    threading.Thread(target=output.close, daemon=True).start()
    assert told == [], "the end comes behind the rest"
    came = b""
    while len(came) < len(sent):
        came += near.recv(1 << 16)
    assert came == sent


def test_a_host_that_sends_more_than_its_window_waits(ends: Ends) -> None:
    near, far = ends
    output = ChannelOutput(_OpenChannel(), far, nothing)
    fed: list[int] = []

    def feed() -> None:
        for number in range(200):
            output.feed(bytes(1 << 15))
            output.flush()
            fed.append(number)

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    end = time.monotonic() + 20
    while len(output) <= WINDOW:
        assert time.monotonic() < end
        select.select([], [], [], 0.001)
    assert feeding.is_alive() and len(fed) < 100 and len(output) <= WINDOW + (1 << 15)
    left = 200 << 15
    while left:
        left -= len(near.recv(min(left, 1 << 16)))
    feeding.join(20)
    assert not feeding.is_alive()
