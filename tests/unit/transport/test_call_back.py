"""The listener for agents that call back, against agents and against others; real sockets, one loop."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mslaunch.agent import call_launcher
from mslaunch.agent.call_launcher import _call, prove
from mslaunch.protocol.call_proof import CALL, LONGEST, TOKEN, bytecode, new_nonce, proof
from mslaunch.runtime.loop import Loop
from mslaunch.transport.call_back import CallListener, call_terms

KEY = bytes(range(TOKEN))


class Listening:
    """A listener, and whom it let in."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.admitted: dict[str, int] = {}
        self.listener = CallListener(loop, KEY, self.admit)
        self.port = self.listener.port

    def admit(self, node: str, fd: int, first: bytes) -> bool:
        new = node not in self.admitted
        if new:
            self.admitted[node] = fd
        return new

    def until(self, condition: object) -> None:
        assert self.loop.run(condition, 10)  # type: ignore[arg-type]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def ended(self, sock: socket.socket) -> bool:
        """Whether the listener ends the connection, having said nothing."""
        sock.setblocking(False)
        seen: list[bytes] = []

        def look() -> bool:
            try:
                if seen:
                    return True
                seen.append(sock.recv(999))
            except BlockingIOError:
                return False
            except ConnectionResetError:
                seen.append(b"")
            return True

        return self.loop.run(look, 10) and seen == [b""]


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Loop() as loop:
        made = Listening(loop)
        yield made
        made.listener.close()
        for fd in made.admitted.values():
            os.close(fd)


def call(made: Listening, node: str, token: bytes = KEY) -> tuple[socket.socket | None, str]:
    """As an agent does, in a thread of its own."""
    results: list[tuple[socket.socket | None, str]] = []
    reader, writer = os.pipe()  # the end of a thread does not wake the loop

    def agent() -> None:
        results.append(_call(["127.0.0.1"], made.port, token, node))  # type: ignore[arg-type]
        os.close(writer)

    threading.Thread(target=agent).start()
    made.loop.reader(reader, lambda: made.loop.reader(reader, None))
    made.until(lambda: results)
    made.loop.reader(reader, None)
    os.close(reader)
    return results[0]


def test_an_agent_is_let_in_under_its_name_and_can_talk(listening: Listening) -> None:
    sock, why = call(listening, "n1")
    assert sock and not why
    listening.until(lambda: "n1" in listening.admitted)
    sock.sendall(b"\0frames\xff")
    assert os.read(listening.admitted["n1"], 99) == b"\0frames\xff"
    os.write(listening.admitted["n1"], b"back")
    assert sock.recv(99) == b"back"
    sock.close()


def test_frames_may_follow_the_proof_at_once(listening: Listening) -> None:
    """A launcher that is slow then finds both in the socket."""
    nonce = new_nonce()
    with listening.connect() as sock:
        sock.sendall(f"{CALL} {nonce} n1 {bytecode()}\n".encode())
        listening.until(lambda: any(caller.expected for caller in listening.listener._callers.waiting))
        theirs, _ = sock.recv(999).decode().split()
        sock.sendall(proof("agent", KEY, nonce, theirs, "n1").encode() + b"\n\0a frame\n")
        listening.until(lambda: "n1" in listening.admitted)
        assert os.read(listening.admitted["n1"], 99) == b"\0a frame\n"


def test_a_node_has_one_connection(listening: Listening) -> None:
    first, _ = call(listening, "n1")
    second, _ = call(listening, "n1")
    assert first and second
    assert listening.ended(second)
    first.close()
    second.close()


def test_an_agent_without_the_token_learns_that_it_is_not_known(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def tried(*words: Any) -> None:
        """All its time is over after the first try, however long that has taken."""
        try:
            prove(*words)
        finally:
            clock[0] += 1000.0

    monkeypatch.setattr(call_launcher, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(call_launcher, "prove", tried)
    sock, why = call(listening, "n1", bytes(TOKEN))
    assert sock is None
    assert why == f"127.0.0.1 port {listening.port}: somebody else listens there"
    assert listening.admitted == {}


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * (LONGEST + 1),
        f"{CALL} nonce n1\n".encode(),
        f"{CALL} nonce n1 cpython more\n".encode(),
        f"{CALL} nonce n1 cpython\nand at once its proof\n".encode(),
        bytes(range(256)),
    ],
)
def test_others_are_cut_off_and_told_nothing(said: bytes, listening: Listening) -> None:
    with listening.connect() as sock:
        sock.sendall(said)
        assert listening.ended(sock)


def test_a_wrong_proof_is_cut_off(listening: Listening) -> None:
    """Also that of the launcher, sent back, and one for another node."""
    for who, node, end in (("launcher", "n1", b"\n"), ("agent", "n2", b"\n"), ("agent", "n1", b"x")):
        nonce = new_nonce()
        with listening.connect() as sock:
            sock.sendall(f"{CALL} {nonce} n1 {bytecode()}\n".encode())
            sock.setblocking(False)
            answer: list[bytes] = []

            def look(sock: socket.socket = sock, answer: list[bytes] = answer) -> bool:
                try:
                    answer.append(sock.recv(999))
                except BlockingIOError:
                    return False
                return True

            listening.until(look)
            theirs, sent = answer[0].decode().split()
            assert sent == proof("launcher", KEY, nonce, theirs, "n1")
            sock.sendall((sent if who == "launcher" else proof(who, KEY, nonce, theirs, node)).encode() + end)
            assert listening.ended(sock)
    assert listening.admitted == {}


def test_a_flood_of_mute_connections_keeps_no_agent_out(listening: Listening) -> None:
    mute = [listening.connect() for _ in range(300)]
    sock, why = call(listening, "n1")
    assert sock and not why
    assert len(listening.listener._callers.waiting) <= 8
    for one in (sock, *mute):
        one.close()


def test_a_mute_connection_is_ended(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.transport.proved_callers._SECONDS", 0.05)
    with listening.connect() as sock:
        assert listening.ended(sock)


def test_nobody_listens_after_the_end(listening: Listening) -> None:
    with listening.connect() as sock:
        listening.until(lambda: listening.listener._callers.waiting)
        listening.listener.close()
        assert listening.ended(sock)
    with pytest.raises(ConnectionRefusedError):
        listening.connect()


def test_the_terms_are_a_line_that_any_locale_reads() -> None:
    assert call_terms(5000, b"\1\2", "NODE", "ADDRESS", ["10.0.0.1", "fd00::1"]) == (
        b"5000 0102 NODE ADDRESS 10.0.0.1 fd00::1\n"
    )
