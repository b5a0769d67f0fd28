"""An SSH server that lets us in, and sends messages that nobody asked for: they cost no memory that grows.

The client runs in a process of its own, whose memory is looked at: with the newest paramiko and with the oldest one.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from test_hostile_ssh_peer import ROOM, dial, end, lab, python

from mslaunch.transport.ssh import paramiko_transport

__all__ = ["lab", "python"]

pytestmark = pytest.mark.sshd
BOUND = 60.0  # seconds
NUMBER = 400  # messages of 200 kB each: 80 MB
LONG = 200_000


def text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


COMMAS = text(b"," * LONG)
#: numbers of messages and what they consist of: RFC 4250, 4.1.2
MESSAGES = {
    "service accept": b"\x06" + COMMAS,
    "failure": b"\x33" + COMMAS + b"\0",
    "success": b"\x34" + COMMAS,
    "key accepted": b"\x3c" + COMMAS,
    "banner": b"\x35" + COMMAS + text(b""),
    "ignore": b"\x02" + COMMAS,
    "debug": b"\x04\x01" + COMMAS + text(b""),
    "unimplemented": b"\x03" + struct.pack(">I", 1),
    "extensions": b"\x07"
    + struct.pack(">I", 0xFFFFFFFF)
    + b"".join(text(b"%06d" % n) + text(b"") for n in range(9999)),
    "server-sig-algs": b"\x07" + struct.pack(">I", 1) + text(b"server-sig-algs") + COMMAS,
    "global request": b"\x50" + COMMAS + b"\0",
    "request success": b"\x51" + COMMAS,
    "channel open": b"\x5a" + COMMAS + struct.pack(">III", 1, 1 << 20, 1 << 15),
}
REFUSED = "it sent a reply about authentication that was not asked for"


class Server:
    """Accepts any key; sends its message again and again once a command runs, or before anybody has logged in."""

    def __init__(self, message: bytes, early: bool, key: Any) -> None:
        self._message = message
        self._early = early
        self._key = key

    def serve(self, connected: socket.socket) -> None:
        paramiko = paramiko_transport.load_paramiko()
        server, ended = self, threading.Event()

        class Late(paramiko.ServerInterface):  # type: ignore[name-defined, misc]
            def check_auth_publickey(self, username: str, key: Any) -> int:
                return int(paramiko.AUTH_SUCCESSFUL)

            def get_allowed_auths(self, username: str) -> str:
                return "publickey"

            def check_channel_request(self, kind: str, chanid: int) -> int:
                return int(paramiko.OPEN_SUCCEEDED)

            def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
                threading.Thread(target=server._flood, args=(transport, ended), daemon=True).start()
                return True

        class Early(paramiko.Transport):  # type: ignore[name-defined, misc]
            def _parse_newkeys(self, m: Any) -> None:
                super()._parse_newkeys(m)
                if server._early:
                    threading.Thread(target=server._flood, args=(self, ended), daemon=True).start()

        transport = Early(connected)
        transport.add_server_key(self._key)
        transport.start_server(threading.Event(), Late())
        assert ended.wait(BOUND)
        transport.close()
        transport.join(BOUND)

    def _flood(self, transport: Any, ended: threading.Event) -> None:
        message = paramiko_transport.load_paramiko().Message(self._message)
        try:
            for _ in range(NUMBER):
                if not transport.active:
                    break
                transport._send_message(message)
        except (OSError, EOFError):
            pass
        ended.set()


@contextmanager
def serving(server: Server) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        waiting.settimeout(BOUND)

        def serve() -> None:
            connected, _ = waiting.accept()
            connected.settimeout(None)
            with connected:
                server.serve(connected)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(waiting.getsockname()[1])
        thread.join(BOUND)
        assert not thread.is_alive()


def attack(python: str, lab: Any, what: str, early: bool) -> tuple[str, int]:
    key = paramiko_transport.load_paramiko().ECDSAKey.generate()
    with serving(Server(MESSAGES[what], early, key)) as port:
        lab.known_hosts(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}")
        return end(dial(python, "127.0.0.1", lab.home, port))


@pytest.mark.parametrize("what", MESSAGES)
def test_messages_that_nobody_asked_for(python: str, lab: Any, what: str) -> None:
    said, grown = attack(python, lab, what, early=False)
    assert (REFUSED in said) == (what in ("service accept", "failure", "success", "key accepted"))
    assert grown < ROOM


@pytest.mark.parametrize("what", ["failure", "banner", "extensions"])
def test_messages_before_anybody_has_logged_in(python: str, lab: Any, what: str) -> None:
    _, grown = attack(python, lab, what, early=True)
    assert grown < ROOM
