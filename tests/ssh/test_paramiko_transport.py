"""paramiko's import and settings: late, quiet, and without what is not needed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mslaunch.errors import LinkError
from mslaunch.transport.ssh import deadline, paramiko_transport
from mslaunch.transport.ssh.tcp_and_proxy import SocketStream

LATE = """
import sys
import mslaunch.transport.ssh.ssh_link
assert "paramiko" not in sys.modules
import mslaunch.transport.ssh.reach_host
assert "paramiko" not in sys.modules
from mslaunch.transport.ssh.paramiko_transport import transport_class
transport_class()
assert "paramiko" in sys.modules and "invoke" not in sys.modules
print("late")
"""


def test_paramiko_is_imported_when_a_connection_is_made_and_invoke_never() -> None:
    root = str(Path(paramiko_transport.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", LATE], env={"PYTHONPATH": root}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("late\n", "")


def test_a_missing_paramiko_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    paramiko_transport.load_paramiko.cache_clear()
    with pytest.raises(LinkError, match="paramiko cannot be imported") as caught:
        paramiko_transport.load_paramiko()
    assert "--rsh-agent ssh" in caught.value.todo
    assert "invoke" not in sys.modules or sys.modules["invoke"] is not None


def test_the_name_of_rfc_8731_is_known() -> None:
    """A host that has only this name would get finite fields, at 20 times the price."""
    cls = paramiko_transport.transport_class()
    assert "curve25519-sha256" in cls._kex_info


def test_a_halted_clock() -> None:
    outer = deadline.Deadline(100.0)
    inner = deadline.Deadline(50.0, outer)
    with inner.stopped():
        before = inner.left(), outer.left()
        assert (inner.left(), outer.left()) == before
    assert 49 < inner.left() <= before[0]
    assert 99 < outer.left() <= before[1]
    assert deadline.Deadline(500.0, inner).seconds <= 50.0


def test_a_channel_keeps_no_more_than_its_window() -> None:
    """A jump host may ignore the window; paramiko would keep all that it sends."""
    paramiko = paramiko_transport.load_paramiko()
    channel = paramiko.Channel(0)
    near, far = socket.socketpair()
    with near, far:
        stream = SocketStream(near, deadline.Deadline(10.0))
        paramiko_transport.bound(channel, stream)
        for pipe in (channel.in_buffer, channel.in_stderr_buffer):
            for _ in range(2):
                pipe.feed(bytes(paramiko_transport.WINDOW))
            assert not stream.refused
            with pytest.raises(paramiko.SSHException, match="more than the window"):
                pipe.feed(b"x")
            assert len(pipe.read(1 << 30)) == 2 * paramiko_transport.WINDOW
            pipe.feed(b"there is room again")
            stream.refused = ""
