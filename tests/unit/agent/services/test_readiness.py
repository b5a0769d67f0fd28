"""Waiting until a service listens at its port, with real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mslaunch.agent.services import readiness
from mslaunch.agent.services.readiness import await_listener
from mslaunch.errors import LaunchError
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


@pytest.mark.parametrize("argv", [(LISTENS,), (BELOW, LISTENS)])
def test_the_wait_ends_when_a_process_listens(loop: Loop, argv: tuple[str, ...]) -> None:
    """The listener may also be a child of the process."""
    heard: list[LaunchError | None] = []
    with Server(*argv) as server:
        await_listener(loop, server.port, server.pid, heard.append)
        loop.run(lambda: bool(heard))
    assert heard == [None]


def test_the_wait_ends_when_another_process_has_the_port(loop: Loop) -> None:
    heard: list[LaunchError | None] = []
    with Server(LISTENS) as server, Server(LISTENS) as other:
        await_listener(loop, server.port, other.pid, heard.append)
        loop.run(lambda: bool(heard))
    assert heard[0] and f"by process {server.pid} (" in heard[0].what


def test_the_wait_has_a_limit(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can also be cancelled earlier."""
    monkeypatch.setattr(readiness, "SECONDS", 0.05)
    heard: list[LaunchError | None] = []
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else can take it, and nobody listens
        port = silent.getsockname()[1]
        await_listener(loop, port, os.getpid(), heard.append)
        await_listener(loop, port, os.getpid(), heard.append).cancel()
        loop.run(lambda: loop._run_due() is None)
    assert not heard
