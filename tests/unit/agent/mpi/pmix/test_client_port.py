"""The port at which ranks reach libpmix, with a library of our own: it accepts, and sends back what it gets."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.agent.mpi.pmix import client_port
from mslaunch.agent.mpi.pmix.client_port import ClientPort, PortTakeover
from mslaunch.agent.mpi.pmix.relayed_client import RelayedClient
from mslaunch.runtime.loop import Loop

BOUND = 10.0


def first(text: bytes, size: int | None = None) -> bytes:
    """A first message of libpmix, which states a namespace of the job."""
    text = b"1-secret\0" + text
    size = None if size is None else size + 9
    return any_first(text, size)


def any_first(text: bytes, size: int | None = None) -> bytes:
    """One that may state anything."""
    return struct.pack("=iIII", -1, 0, len(text) if size is None else size, 0) + text


def accept_all(listener: socket.socket, take: Callable[[socket.socket], None]) -> None:
    """Accept until the test is over; wait for the socket as libpmix does, by its number."""
    while True:
        try:
            select.select([listener.fileno()], [], [], 60)
            sock = socket.socket(fileno=socket.socket._accept(listener)[0])  # type: ignore[attr-defined]
        except BlockingIOError:
            continue
        except (OSError, ValueError):  # the test is over
            return
        take(sock)


class Echo:
    """A library: a listening TCP socket, and a thread that waits for it as libpmix does, by its number."""

    def __init__(self) -> None:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.address = self.listener.getsockname()  # as libpmix: once it listens, it may be another socket
        self.listener.listen()
        self.listener.setblocking(False)
        self.clients = 0  # that have said something
        self.heard = b""
        self.ended = os.pipe()  # a byte for each client that has ended
        threading.Thread(target=accept_all, args=(self.listener, self._take), daemon=True).start()

    def _take(self, sock: socket.socket) -> None:
        threading.Thread(target=self._echo, args=(sock,), daemon=True).start()

    def _echo(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        spoken = False
        with sock, contextlib.suppress(ConnectionError):
            while data := sock.recv(1 << 16):
                self.clients += not spoken
                spoken = True
                self.heard += data
                sock.sendall(data)
        with contextlib.suppress(OSError):  # the test is over
            os.write(self.ended[1], b"." * spoken)


class Port:
    """All of it, in a loop."""

    def __init__(self, folder: Path) -> None:
        self.strangers: list[tuple[int, bool]] = []
        with contextlib.closing(PortTakeover(str(folder))) as takeover:
            self.library = Echo()
            self.address = self.library.address
            taken = takeover.listener()
        assert taken
        self.loop = Loop()
        self._port = ClientPort(
            self.loop, taken, lambda: ["1-secret"], lambda uid, knowing: self.strangers.append((uid, knowing))
        )

    def close(self) -> None:
        """Ours first: the library waits for its socket by its number."""
        self._port.close()
        self.library.listener.close()
        for fd in self.library.ended:
            os.close(fd)

    def connect(self) -> socket.socket:
        sock = socket.create_connection(self.address, BOUND)
        sock.setblocking(False)
        return sock

    def talk(self, sock: socket.socket, send: bytes = b"", wanted: int = 1) -> bytes:
        """Send, and receive as much as is wanted, or to the end."""
        got: list[bytes] = []
        over: list[bool] = []

        def read() -> None:
            try:
                data = sock.recv(1 << 16)
            except ConnectionError:
                data = b""
            got.append(data)
            if not data:
                over.append(True)
                self.loop.reader(sock.fileno(), None)

        def write() -> None:
            nonlocal send
            send = send[sock.send(send) :]
            if not send:
                self.loop.writer(sock.fileno(), None)

        self.loop.reader(sock.fileno(), read)
        if send:
            self.loop.writer(sock.fileno(), write)
        self.loop.run(lambda: bool(over) or sum(map(len, got)) >= wanted, BOUND)
        self.loop.reader(sock.fileno(), None)
        self.loop.writer(sock.fileno(), None)
        return b"".join(got)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path)
    with made.loop:
        yield made
        made.close()


def test_what_is_said_passes_in_both_directions(port: Port) -> None:
    much = os.urandom(1 << 22)  # more than all buffers between
    with port.connect() as sock:
        assert port.talk(sock, first(b"hello"), 30) == first(b"hello")
        assert port.talk(sock, much, len(much)) == much


def test_the_library_hears_nothing_of_a_client_before_its_first_message_is_whole(port: Port) -> None:
    with port.connect() as silent, port.connect() as slow, port.connect() as sock:
        slow.send(first(b"hello", 100))
        assert port.talk(sock, first(b"quick"), 30) == first(b"quick")
        assert port.library.clients == 1
        assert port.talk(slow, b"." * 95, 125) == first(b"hello", 100) + b"." * 95
        assert silent.fileno() >= 0


def test_a_client_that_never_says_it_is_closed(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_port, "FIRST_MESSAGE", 0.1)
    with port.connect() as sock:
        assert port.talk(sock, b"\0\0") == b""


def test_a_first_message_that_is_too_long_is_not_kept(port: Port) -> None:
    with port.connect() as sock:
        assert port.talk(sock, first(b"x" * 100, 1 << 31)) == b""
    assert port.library.heard == b""


@pytest.mark.parametrize("said", [b"", b"1-guess\0", b"1-secrets\0", b"1-secret"])
def test_a_first_message_without_a_world_does_not_reach_the_library(port: Port, said: bytes) -> None:
    with port.connect() as sock:
        assert port.talk(sock, any_first(said)) == b""
    assert port.library.heard == b""


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 1 << 17))
def test_any_bytes_in_any_pieces_are_one_first_message_or_none(pieces: list[bytes], size: int) -> None:
    """The header says how many bytes follow; what a client says beyond these is kept, and not read as a second one."""
    said = b"".join([struct.pack("=iIII", 0, 0, size % 64 if size & 1 else size, 0), *pieces])
    wanted = 16 + struct.unpack_from("=iIII", said)[2]
    began: list[tuple[bytes, bool]] = []
    ours, theirs = socket.socketpair()
    with Loop() as loop, theirs:
        client = RelayedClient(loop, ours.detach(), lambda first, whole: began.append((first, whole)))
        for piece in [said[:16], *pieces]:
            with contextlib.suppress(BrokenPipeError):  # it was too long, and is closed
                theirs.sendall(piece)
            loop.run(lambda: bool(began), 0.001)
        if wanted <= len(said) or wanted > 16 + (1 << 15):
            loop.run(lambda: bool(began), BOUND)
        client.hurry()
        client.close()
    ((first, whole),) = began
    assert whole == (wanted <= len(said) and wanted <= 16 + (1 << 15))
    assert said.startswith(first) and (not whole or len(first) >= wanted)


def test_the_oldest_silent_client_goes_when_there_are_too_many(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_port, "UNFINISHED", 2)
    with port.connect() as oldest, port.connect(), port.connect():
        assert port.talk(oldest) == b""


def test_an_end_reaches_the_other_side_after_all_that_was_said(port: Port) -> None:
    with port.connect() as sock:
        assert port.talk(sock, first(b"hello"), 30)
        assert port.library.clients == 1
        sock.sendall(b"bye")
    ended: list[bytes] = []
    port.loop.reader(port.library.ended[0], lambda: ended.append(os.read(port.library.ended[0], 1)))
    port.loop.run(lambda: bool(ended), BOUND)
    port.loop.reader(port.library.ended[0], None)
    assert port.library.heard == first(b"hello") + b"bye"


@pytest.mark.parametrize(("said", "knows"), [(first(b"x"), True), (any_first(b"1-guess"), False), (b"", False)])
def test_another_user_is_refused_and_told_of_once(
    port: Port, monkeypatch: pytest.MonkeyPatch, said: bytes, knows: bool
) -> None:
    monkeypatch.setattr(client_port, "owner", lambda fd: 64321)
    if not said:
        monkeypatch.setattr(client_port, "FIRST_MESSAGE", 0.1)
    for _ in range(2):
        with port.connect() as sock:
            assert port.talk(sock, said) == b""
    assert port.strangers == [(64321, False), *[(64321, True)] * (2 * knows)]
    assert port.library.heard == b""


def test_who_is_on_no_host_of_ours_is_closed(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_port, "owner", lambda fd: None)
    with port.connect() as sock:
        assert port.talk(sock, first(b"1-secret")) == b""
    assert port.strangers == []


def test_a_library_that_does_not_accept_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone, it would read what other users send."""
    monkeypatch.setattr(client_port, "_SETTLE", 0.1)
    with (
        contextlib.closing(PortTakeover(str(tmp_path))) as takeover,
        socket.create_server(("127.0.0.1", 0)),
        pytest.raises(OSError, match="accepts no connections"),
    ):
        takeover.listener()


def test_a_library_with_several_ports_is_an_error(tmp_path: Path) -> None:
    with contextlib.closing(PortTakeover(str(tmp_path))) as takeover:
        library = Echo()
        with library.listener, socket.create_server(("127.0.0.1", 0)), pytest.raises(OSError, match="several"):
            takeover.listener()


def test_a_library_without_a_port_has_none(tmp_path: Path) -> None:
    with contextlib.closing(PortTakeover(str(tmp_path))) as takeover, socket.socket(socket.AF_UNIX):
        assert takeover.listener() is None


def test_a_takeover_ends_even_if_its_thread_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fail() -> dict[str, int]:
        failed.set()
        raise MemoryError

    takeover = PortTakeover(str(tmp_path))
    monkeypatch.setattr(client_port, "open_sockets", fail)
    assert failed.wait(BOUND)
    ending = threading.Thread(target=takeover.close, daemon=True)
    ending.start()
    ending.join(BOUND)
    assert not ending.is_alive()
    with pytest.raises(MemoryError):
        takeover.listener()


def test_a_port_that_cannot_be_taken_for_lack_of_descriptors_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passing over the library's socket would leave its port open to other users, without a word."""

    def no_descriptor(fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with contextlib.closing(PortTakeover(str(tmp_path))) as takeover:
        monkeypatch.setattr(os, "dup", no_descriptor)
        with socket.create_server(("127.0.0.1", 0)), pytest.raises(OSError, match="Too many open files"):
            takeover.listener()


class Patient:
    """A library with one thread, which waits for the whole header of each client, as libpmix does."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.accepted = threading.Event()
        threading.Thread(target=accept_all, args=(self.listener, self._take), daemon=True).start()

    def _take(self, sock: socket.socket) -> None:
        self.accepted.set()
        sock.setblocking(True)
        with sock, contextlib.suppress(ConnectionError):
            sock.recv(16, socket.MSG_WAITALL)


def test_who_connects_before_the_port_is_taken_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_port, "_INTERVAL", 60.0)  # the worst case: the library has accepted all of them
    with contextlib.closing(PortTakeover(str(tmp_path))) as takeover:
        library = Patient()
        with library.listener, contextlib.ExitStack() as opened:
            address = library.listener.getsockname()
            strangers = [opened.enter_context(socket.create_connection(address, BOUND)) for _ in range(5)]
            for stranger in strangers:
                stranger.send(b"\0" * 8)
            assert library.accepted.wait(BOUND)
            monkeypatch.setattr(client_port, "_INTERVAL", 0.002)
            taken = takeover.listener()
            assert taken
            assert strangers[0].recv(1) == b""
            taken.close()
