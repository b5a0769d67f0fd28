"""The connection of two commands: what the kernel is asked for, since a host that is gone says nothing."""

from __future__ import annotations

import socket
from typing import Any

from mslaunch.launcher.peers.peer_link import PeerLink
from mslaunch.protocol.call_proof import CALLER, CallWords, seals
from mslaunch.runtime.loop import Loop


def unheard(*words: Any) -> None:
    raise AssertionError(words)


def test_a_host_that_is_gone_without_a_word_is_missed_within_a_minute() -> None:
    with Loop() as loop, socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
        call = CallWords("a", "b", "peer", "meet", "place")
        link = PeerLink(loop, sock, seals(CALLER, bytes(32), call), unheard, unheard)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, pause, count = (sock.getsockopt(socket.IPPROTO_TCP, name) for name in names)
        assert idle + pause * count < 60
        link.close()
