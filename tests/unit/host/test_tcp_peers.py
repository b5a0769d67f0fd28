"""Who has opened a connection, from the kernel's table of sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from mslaunch.host import tcp_peers
from mslaunch.host.free_ports import Listener
from mslaunch.host.tcp_peers import turn_away


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
    monkeypatch.setattr(tcp_peers.sys, "byteorder", "little")
    assert tcp_peers.column("127.0.0.1") == b"0100007F"
    assert tcp_peers.column("::ffff:127.0.0.1") == b"0000000000000000FFFF00000100007F"
