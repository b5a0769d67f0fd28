"""The owner of the other end of a TCP connection, from the kernel: by sock_diag, and from its table of sockets."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable

import pytest

from mslaunch.host import connection_owners
from mslaunch.host.connection_owners import owner, turn_away
from mslaunch.host.free_ports import Listener


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


def test_the_table_is_not_read_for_an_end_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have a row for each connection that any user has closed within a minute."""
    read: list[object] = []
    monkeypatch.setattr(connection_owners, "_in_table", lambda *what: read.append(what))
    for end in (reset, socket.socket.close):
        client, server = connected("127.0.0.1")
        with server:
            end(client)
            assert owner(server.fileno()) is None
    assert read == []


def test_a_kernel_that_knows_no_connection_at_all_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its module tcp_diag it says of every connection that there is none."""
    monkeypatch.setattr(connection_owners, "_diagnosed", lambda *_: b"")
    client, server = connected("127.0.0.1")
    with client, server:
        assert owner(server.fileno()) == os.getuid()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def reset_and_again(listener: socket.socket) -> tuple[socket.socket, socket.socket] | None:
    """The server's end of a connection that was reset, and a new client at the address of the old one.

    None if somebody else has taken that port meanwhile.
    """
    client = socket.create_connection(listener.getsockname())
    server, address = listener.accept()
    reset(client)
    again = socket.socket()
    again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        again.bind(address)
    except OSError:
        server.close()
        again.close()
        return None
    again.connect(listener.getsockname())
    return server, again


@pytest.mark.usefixtures("way")
def test_who_has_reset_owns_nothing_though_another_has_the_same_address_now() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server, again = next(filter(None, (reset_and_again(listener) for _ in range(20))))
        with server, again:
            assert owner(server.fileno()) is None


def test_who_resets_while_the_kernel_is_asked_owns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel says may be of another connection, with the same addresses."""
    client, server = connected("127.0.0.1")

    def asked(*_: object) -> int:
        reset(client)
        return os.getuid()

    monkeypatch.setattr(connection_owners, "_asked", asked)
    with server:
        assert owner(server.fileno()) is None


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
def test_the_two_ends_may_differ_in_their_family(listener: Listener, address: str) -> None:
    """A socket of IPv4 is in another table than that of IPv6 to which it is connected."""
    with socket.create_connection((address, listener.port), 10) as client:
        server = listener.accept()
        assert owner(server.fileno()) == owner(client.fileno()) == os.getuid()
        server.close()
    listener.close()


@pytest.mark.usefixtures("way")
def test_who_writes_no_more_still_owns_its_end() -> None:
    client, server = connected("127.0.0.1")
    with client, server:
        client.shutdown(socket.SHUT_WR)
        assert owner(server.fileno()) == owner(client.fileno()) == os.getuid()


@pytest.fixture
def listener() -> Listener:
    made = Listener()
    made.listen()
    return made


@pytest.mark.parametrize("connect", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_our_own_connection_counts(listener: Listener, connect: str) -> None:
    """Whichever family of addresses its socket has."""
    with socket.create_connection((connect, listener.port), 10) as line:
        assert turn_away(listener.accept, ()) == [None]
        with pytest.raises(ConnectionResetError):
            line.recv(1)
    listener.close()


def test_that_of_another_user_does_not(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), 10):
        monkeypatch.setattr(os, "geteuid", lambda: 64321)
        (who,) = turn_away(listener.accept, ("127.0.0.1",))
        assert who == "user root" if os.getuid() == 0 else who
    listener.close()


def test_what_was_closed_is_unknown(listener: Listener) -> None:
    """Nobody knows whose it was; the kernel says 0, which may be wrong."""
    socket.create_connection(("127.0.0.1", listener.port), 10).close()
    line = socket.create_connection(("127.0.0.1", listener.port), 10)
    assert turn_away(listener.accept, ("127.0.0.1",)) == ["", None]
    assert turn_away(listener.accept, ()) == []
    line.close()
    listener.close()


class Visitor:
    """A connection from another host."""

    def __init__(self, address: str) -> None:
        self._address = address

    def getpeername(self) -> tuple[str, int, int, int]:
        return (self._address, 40000, 0, 0)

    def getsockname(self) -> tuple[str, int, int, int]:
        return ("::ffff:10.0.0.1", 8118, 0, 0)

    def setsockopt(self, *how: object) -> None: ...

    def close(self) -> None: ...


def accepting(*visitors: Visitor) -> Callable[[], Visitor]:
    left = list(visitors)

    def accept() -> Visitor:
        if not left:
            raise BlockingIOError
        return left.pop(0)

    return accept


@pytest.mark.parametrize(
    ("address", "hosts", "who"),
    [
        ("::ffff:10.0.0.2", ("10.0.0.2",), None),
        ("::ffff:10.0.0.3", ("10.0.0.2",), "10.0.0.3"),
        ("10.0.0.3", ("*",), None),
        ("fd00:77::2", ("fd00:77::2",), None),
        ("fe80::2%eth0", ("fd00::2",), "fe80::2"),
        ("::ffff:127.0.0.1", ("127.0.0.1", "*"), ""),
        ("::1", ("*",), ""),
    ],
)
def test_another_host_has_to_be_one_of_the_job(address: str, hosts: tuple[str, ...], who: str | None) -> None:
    """One that claims to be this host, and has no socket here, is nobody."""
    assert turn_away(accepting(Visitor(address)), hosts) == [who]  # type: ignore[arg-type]


def test_the_columns_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_owners.sys, "byteorder", "little")
    assert connection_owners.column("127.0.0.1") == b"0100007F"
    assert connection_owners.column("::ffff:127.0.0.1") == b"0000000000000000FFFF00000100007F"
