"""Frames of WebSocket (RFC 6455, section 5), and the channels of `kubectl exec` in them.

A message of the protocol v5.channel.k8s.io is a byte that names its channel, and data (KEP-4006; client-go,
tools/remotecommand/websocket.go and v5.go).
"""

from __future__ import annotations

import base64
import hashlib
import struct

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255  #: CLOSE: the next byte is a channel that ends
BINARY, CLOSING, PING, PONG = 2, 8, 9, 10
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accepted(key: str) -> str:
    """Sec-WebSocket-Accept for a Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()


def frame(kind: int, data: bytes, mask: bytes = b"") -> bytes:
    """A whole message as one frame; clients mask theirs."""
    size = len(data)
    flag = 0x80 if mask else 0
    if size < 126:
        length = bytes([flag | size])
    else:
        length = struct.pack("!BH", flag | 126, size) if size < 1 << 16 else struct.pack("!BQ", flag | 127, size)
    return bytes([0x80 | kind]) + length + mask + (masked(data, mask) if mask else data)


def masked(data: bytes, mask: bytes) -> bytes:
    """Exclusive or with the mask, again and again."""
    size = len(data)
    pad = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(data, "big") ^ pad).to_bytes(size, "big")


class Frames:
    """The frames in a stream that comes in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that are whole now: kind and data.  kubectl sends no message in several frames."""
        self._data += data
        found = []
        while one := self._first():
            found.append(one)
        return found

    def _first(self) -> tuple[int, bytes] | None:
        have = self._data
        if len(have) < 2:
            return None
        size, at = have[1] & 0x7F, 2
        if size > 125:
            wide = 2 if size == 126 else 8
            size, at = int.from_bytes(have[2 : 2 + wide], "big"), 2 + wide
        mask = bytes(have[at : at + 4]) if have[1] & 0x80 else b""
        end = at + len(mask) + size
        if len(have) < max(end, at + 4 * (have[1] >> 7)):
            return None
        assert have[0] & 0x80, "a message in several frames"
        data = bytes(have[end - size : end])
        kind = have[0] & 0xF
        del have[:end]
        return kind, masked(data, mask) if mask else data
