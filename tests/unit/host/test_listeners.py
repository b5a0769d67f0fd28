"""Listeners of a port as read from /proc, and waiting until a process listens."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import LaunchError, WireError
from mslaunch.host import listeners
from mslaunch.host.listeners import ListenWait, by_whom, holder, refused, sockets
from mslaunch.protocol import control
from mslaunch.runtime.loop import Loop

LISTENS = """\
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""
BELOW = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"


class Server:
    """A process that listens itself, or whose child does."""

    def __init__(self, *argv: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid

    def __enter__(self) -> Server:
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_listener_of_a_port_is_found(family: socket.AddressFamily) -> None:
    with socket.socket(family) as server:
        server.bind(("", 0))
        port = server.getsockname()[1]
        assert sockets(port) == set(), "bound, and does not listen"
        server.listen()
        found = sockets(port)
        assert found == {os.readlink(f"/proc/self/fd/{server.fileno()}")}
        assert holder(found, [1, os.getpid()]) == os.getpid()
        with socket.create_connection(("localhost", port)) as line:
            assert sockets(line.getsockname()[1]) == set(), "a connection"
    assert sockets(port) == set()


def test_processes_that_are_gone_or_not_ours_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert holder({"socket:[1]"}, [os.getpid(), 2**22 + 1]) is None

    def denied(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    assert holder({"socket:[1]"}, [os.getpid()]) == 0


def test_descriptions_of_listeners() -> None:
    with Server(LISTENS) as server:
        assert by_whom(server.port).startswith(f" by process {server.pid} ({sys.executable[:60]}")
        taken = refused(server.port, False, OSError(errno.EADDRINUSE, "Address already in use"))
        assert taken.what == f"port {server.port} is taken{by_whom(server.port)}"
        assert len(taken.what) < 160 and "\n" not in taken.what
    assert by_whom(server.port) == " by another process"
    moved = refused(8118, True, OSError(errno.EADDRINUSE, "Address already in use"))
    assert moved.what == "port 8118 is taken, and so are those below it that were tried"
    denied = refused(80, False, OSError(errno.EACCES, "Permission denied"))
    assert denied.what == "port 80 cannot be used: Permission denied"
    assert refused(0, False, OSError(errno.EMFILE, "Too many")).what == "no free TCP port was found: Too many"


@pytest.mark.parametrize("argv", [(LISTENS,), (BELOW, LISTENS)])
def test_the_wait_ends_when_a_process_listens(loop: Loop, argv: tuple[str, ...]) -> None:
    """The listener may also be a child of the process."""
    heard: list[LaunchError | None] = []
    with Server(*argv) as server:
        ListenWait(loop, server.port, server.pid, heard.append)
        loop.run(lambda: bool(heard))
    assert heard == [None]


def test_the_wait_ends_when_another_process_has_the_port(loop: Loop) -> None:
    heard: list[LaunchError | None] = []
    with Server(LISTENS) as server, Server(LISTENS) as other:
        ListenWait(loop, server.port, other.pid, heard.append)
        loop.run(lambda: bool(heard))
    assert heard[0] and f"by process {server.pid} (" in heard[0].what


def test_the_wait_has_a_limit(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can also be cancelled earlier."""
    monkeypatch.setattr(listeners, "SECONDS", 0.05)
    heard: list[LaunchError | None] = []
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else can take it, and nobody listens
        port = silent.getsockname()[1]
        ListenWait(loop, port, os.getpid(), heard.append)
        ListenWait(loop, port, os.getpid(), heard.append).cancel()
        loop.run(lambda: loop._timers.run_due() is None)
    assert not heard


@given(st.lists(st.builds(control.PortRequest, st.integers(0, 65535), st.booleans()), max_size=4))
def test_port_requests_survive_a_round_trip(ports: list[control.PortRequest]) -> None:
    assert control.unpack_ports(control.pack_ports(ports)) == ports


def test_port_requests_are_short() -> None:
    wanted = [control.PortRequest(), control.PortRequest(8118), control.PortRequest(8118, True)]
    assert control.pack_ports(wanted) == b"0 8118 8118-"


@pytest.mark.parametrize("payload", [b"-1", b"65536", b"x", b"8118--", b"-", b"8118+", b"\xff"])
def test_malformed_port_requests_are_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        control.unpack_ports(payload)
