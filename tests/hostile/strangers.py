"""What strangers do where callers must prove that they know a token (`transport.proved_callers`), and how it ends."""

from __future__ import annotations

import socket
from collections.abc import Callable

from mslaunch.protocol.call_proof import CALL, LONGEST, new_nonce

Connect = Callable[[], socket.socket]


def cut_off(sock: socket.socket) -> bool:
    """Whether the other side ends this connection."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def line(sock: socket.socket) -> str:
    """The next line, whose bytes are taken and no more."""
    text = b""
    while not text.endswith(b"\n"):
        piece = sock.recv(1)
        assert piece, text
        text += piece
    return text.decode()


def make_noise(connect: Connect) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * (LONGEST + 1), b"\n", f"{CALL} 0 n1\n".encode()):
        with connect() as sock:
            sock.sendall(said)
            assert cut_off(sock)


def send_back_its_own_proof(connect: Connect, name: str, kind: str) -> None:
    """That of a second connection, which gets the nonce of the first as the caller's."""
    with connect() as first, connect() as second:
        first.sendall(f"{CALL} {new_nonce()} {name} {kind}\n".encode())
        theirs = line(first).split()[0]
        second.sendall(f"{CALL} {theirs} {name} {kind}\n".encode())
        first.sendall(line(second).split()[2].encode() + b"\n")
        assert cut_off(first)
