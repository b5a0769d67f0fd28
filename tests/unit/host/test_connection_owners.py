"""The owner of the other end of a TCP connection, from the kernel: by sock_diag, and from its table of sockets."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from mslaunch.host import connection_owners
from mslaunch.host.connection_owners import owner


@pytest.fixture(params=["sock_diag", "table"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "table":
        monkeypatch.setattr(connection_owners, "_asked", lambda *_: None)
    else:
        monkeypatch.setattr(connection_owners, "_in_table", lambda *_: None)


def connected(address: str) -> tuple[socket.socket, socket.socket]:
    """A connection: who connects, and who accepts."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            pytest.skip("NOT TESTED: no IPv6 here")
        listener.listen()
        client = socket.create_connection(listener.getsockname()[:2])
        return client, listener.accept()[0]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_ends_are_ours(address: str) -> None:
    client, server = connected(address)
    with client, server:
        assert owner(server.fileno()) == owner(client.fileno()) == os.getuid()
        server.sendall(b"x")  # it is open still
        assert client.recv(1) == b"x"


@pytest.mark.usefixtures("way")
def test_who_has_closed_owns_nothing() -> None:
    client, server = connected("127.0.0.1")
    with server:
        client.close()
        assert owner(server.fileno()) is None


@pytest.mark.usefixtures("way")
def test_who_has_reset_owns_nothing_though_another_has_the_same_address_now() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = socket.create_connection(listener.getsockname())
        server, address = listener.accept()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        with socket.socket() as again, server:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(address)
            again.connect(listener.getsockname())
            assert owner(server.fileno()) is None
