"""Listeners of a port as read from /proc."""

from __future__ import annotations

import errno
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.host.listeners import by_whom, holder, refused, sockets
from mslaunch.launcher.agents.rendezvous import pack_ports
from mslaunch.protocol import control


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_listener_of_a_port_is_found(family: socket.AddressFamily) -> None:
    with socket.socket(family) as server:
        server.bind(("", 0))
        port = server.getsockname()[1]
        assert sockets(port) == {}, "bound, and does not listen"
        server.listen()
        found = sockets(port)
        assert found == {os.readlink(f"/proc/self/fd/{server.fileno()}"): os.geteuid()}
        assert holder(found, [1, os.getpid()]) == os.getpid()
        with socket.create_connection(("localhost", port)) as line:
            assert sockets(line.getsockname()[1]) == {}, "a connection"
    assert sockets(port) == {}


def test_processes_that_are_gone_or_not_ours_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert holder({"socket:[1]"}, [os.getpid(), 2**22 + 1]) is None

    def gone(path: str) -> list[str]:
        raise ProcessLookupError(errno.ESRCH, "No such process")

    monkeypatch.setattr(os, "listdir", gone)
    assert holder({"socket:[1]"}, [os.getpid()]) is None

    def denied(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    assert holder({"socket:[1]"}, [os.getpid()]) == 0


def test_descriptions_of_listeners() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert by_whom(port).startswith(f" by process {os.getpid()} (")
        taken = refused(port, False, OSError(errno.EADDRINUSE, "Address already in use"))
        assert taken.what == f"port {port} is taken{by_whom(port)}"
        assert len(taken.what) < 160 and "\n" not in taken.what
    assert by_whom(port) == " by another process"
    moved = refused(8118, True, OSError(errno.EADDRINUSE, "Address already in use"))
    assert moved.what == "port 8118 is taken, and so are those below it that were tried"
    denied = refused(80, False, OSError(errno.EACCES, "Permission denied"))
    assert denied.what == "port 80 cannot be used: Permission denied"
    full = refused(0, False, OSError(errno.EMFILE, "Too many"))
    assert full.what.startswith("no free TCP port was found: Too many (ulimit -n is ") and "raise" in full.todo


@given(
    st.lists(st.builds(control.PortRequest, st.integers(0, 65535), st.booleans()), max_size=4),
    st.one_of(st.just(""), st.ip_addresses().map(str)),
)
def test_port_requests_survive_a_round_trip(ports: list[control.PortRequest], address: str) -> None:
    payload = pack_ports(ports, address)
    assert (control.unpack_ports(payload), control.unpack_address(payload)) == (ports, address)


def test_port_requests_are_short() -> None:
    wanted = [control.PortRequest(), control.PortRequest(8118), control.PortRequest(8118, True)]
    assert pack_ports(wanted) == b"0 8118 8118-"


@pytest.mark.parametrize("payload", [b"-1", b"65536", b"x", b"8118--", b"-", b"8118+", b"\xff"])
def test_malformed_port_requests_are_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        control.unpack_ports(payload)
