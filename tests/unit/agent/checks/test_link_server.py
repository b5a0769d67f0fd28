"""The end of a measurement that listens: strangers do not keep out those who know the token."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from virtual_time import VirtualClock

from mslaunch.agent.checks import link_server
from mslaunch.agent.checks.link_server import LinkServer
from mslaunch.runtime.loop import Loop

STRANGERS = 3 * link_server._AT_ONCE


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Its time stands still while something is ready: nobody is hung up on for being slow on a slow machine."""
    with Loop(VirtualClock()) as made:
        yield made


@pytest.fixture
def server(loop: Loop) -> Iterator[LinkServer]:
    made = LinkServer(loop)
    yield made
    for peer in [*made._strangers, *made._proved]:
        peer.close()
    loop.reader(made._listener.fileno(), None)
    made._listener.close()


def call(loop: Loop, server: LinkServer) -> socket.socket:
    """A connection that the server has accepted."""
    client = socket.create_connection(("127.0.0.1", server.listening.port))
    client.setblocking(False)
    loop.run(lambda: False, 0.002)
    return client


def heard(loop: Loop, client: socket.socket, seconds: float = 2.0) -> bytes | None:
    """What the server says next; b"": it has hung up; None: nothing."""
    got: list[bytes] = []

    def read() -> None:
        try:
            got.append(client.recv(100))
        except ConnectionResetError:
            got.append(b"")

    loop.reader(client.fileno(), read)
    loop.run(lambda: bool(got), seconds)
    loop.reader(client.fileno(), None)
    return got[0] if got else None


def test_strangers_keep_nobody_out(loop: Loop, server: LinkServer) -> None:
    token, proof = server.listening.token.encode(), server.listening.proof.encode()
    first = call(loop, server)
    first.send(token)
    assert heard(loop, first) == proof
    strangers = [call(loop, server) for _ in range(STRANGERS)]
    assert heard(loop, strangers[0]) == b""  # the oldest one has made room
    assert heard(loop, strangers[-1], 0.01) is None
    second = call(loop, server)
    second.send(token)
    assert heard(loop, second) == proof
    first.send(b"p")
    assert heard(loop, first) == b"p"  # who has proved itself is not counted among them
    for client in (first, second, *strangers):
        client.close()


def test_who_shows_no_token_is_hung_up_on_soon(loop: Loop, server: LinkServer) -> None:
    stranger, other = call(loop, server), call(loop, server)
    other.send(server.listening.token.encode())
    assert heard(loop, other) == server.listening.proof.encode()
    began = loop.now()
    assert heard(loop, stranger, 60.0) == b""
    assert loop.now() - began <= link_server._PROOF
    assert heard(loop, other, 2 * link_server._PROOF) is None
    stranger.close()
    other.close()


def test_those_who_know_the_token_are_bounded(loop: Loop, server: LinkServer) -> None:
    clients = []
    for _ in range(link_server._AT_ONCE + 1):
        clients.append(call(loop, server))
        clients[-1].send(server.listening.token.encode())
        last = heard(loop, clients[-1])
    assert last == b""
    clients.pop().close()
    clients.pop(0).close()
    clients.append(call(loop, server))
    clients[-1].send(server.listening.token.encode())
    assert heard(loop, clients[-1]) == server.listening.proof.encode()
    for client in clients:
        client.close()
