"""The end of a measurement that listens: strangers do not keep out those who know the token."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from virtual_time import VirtualClock

from mslaunch.agent.checks import link_server
from mslaunch.agent.checks.link_server import LinkServer
from mslaunch.protocol import address_proof
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


NONCE = "5" * address_proof.NONCE


def is_served(loop: Loop, server: LinkServer, client: socket.socket) -> bool:
    """Prove to each other who we are, and ping."""
    token = server.listening.token
    client.send(NONCE.encode())
    answer = heard(loop, client)
    if not answer:
        return False
    proved, _, theirs = answer.decode().partition("\n")
    assert address_proof.proved_address(token, NONCE, proved.encode()) == "127.0.0.1"
    client.send(address_proof.caller_proof(token, NONCE, theirs.strip(), "127.0.0.1").encode() + b"p")
    return heard(loop, client) == b"p"


def test_a_proof_for_another_address_is_refused(loop: Loop, server: LinkServer) -> None:
    """A relay passes on what a caller has sent it."""
    token = server.listening.token
    client = call(loop, server)
    client.send(NONCE.encode())
    answer = heard(loop, client)
    assert answer
    theirs = answer.decode().partition("\n")[2].strip()
    client.send(address_proof.caller_proof(token, NONCE, theirs, "127.0.0.9").encode())
    assert heard(loop, client) == b""
    client.close()


def test_strangers_keep_nobody_out(loop: Loop, server: LinkServer) -> None:
    first = call(loop, server)
    assert is_served(loop, server, first)
    strangers = [call(loop, server) for _ in range(STRANGERS)]
    assert heard(loop, strangers[0]) == b""  # the oldest one has made room
    assert heard(loop, strangers[-1], 0.01) is None
    second = call(loop, server)
    assert is_served(loop, server, second)
    first.send(b"p")
    assert heard(loop, first) == b"p"  # who has proved itself is not counted among them
    for client in (first, second, *strangers):
        client.close()


def test_a_caller_without_a_proof_is_hung_up_on_soon(loop: Loop, server: LinkServer) -> None:
    stranger, other = call(loop, server), call(loop, server)
    assert is_served(loop, server, other)
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
        assert is_served(loop, server, clients[-1]) == (len(clients) <= link_server._AT_ONCE)
    clients.pop().close()
    clients.pop(0).close()
    clients.append(call(loop, server))
    assert is_served(loop, server, clients[-1])
    for client in clients:
        client.close()
