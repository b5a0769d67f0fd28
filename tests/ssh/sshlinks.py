"""Opening links and reading them, for the SSH tests."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from typing import Any

from sshd import Sshd, SshLab

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.transport.ssh.ssh_link import SshLink, make_links


class Opener:
    """Opens links and remembers what was said and opened."""

    def __init__(self, lab: SshLab) -> None:
        self.lab = lab
        self.notices: list[str] = []
        self.links: list[SshLink] = []

    def __call__(self, where: Sshd | Node | str, command: str = "cat", first: bytes = b"", **policy: Any) -> SshLink:
        return self.many([where], command, first, None, **policy)[0]

    def many(
        self,
        places: Sequence[Sshd | Node | str],
        command: str = "cat",
        first: bytes = b"",
        begun: int | None = None,
        **policy: Any,
    ) -> list[SshLink]:
        """`first` is sent to each that is begun.  `begun`: how many are; None: all of them."""
        nodes = [self.node(place) for place in places]
        links = make_links(nodes, command, LinkPolicy(**policy), self.lab.environ, self.notices.append)
        self.links += links
        for link in links[:begun]:
            link.begin()
            write(link, first)
        return links

    @staticmethod
    def node(place: Sshd | Node | str) -> Node:
        if isinstance(place, Node):
            return place
        if isinstance(place, str):
            return Node(place, 1, "test")
        return Node(place.address, 1, "test", port=place.port)


def read(link: SshLink, size: int = -1, seconds: float = 30.0) -> bytes:
    """`size` bytes, or everything to the end of the stream."""
    end = time.monotonic() + seconds
    data = bytearray()
    while size < 0 or len(data) < size:
        if not select.select([link.reader], [], [], max(0.0, end - time.monotonic()))[0]:
            raise AssertionError(f"nothing more after {len(data)} bytes; failure {link.failure()}, {link.noise()!r}")
        try:
            more = os.read(link.reader, 1 << 16 if size < 0 else min(1 << 16, size - len(data)))
        except ConnectionResetError:  # it ended before it took what was written early
            break
        if not more:
            break
        data += more
    return bytes(data)


def write(link: SshLink, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(link.writer, left) :]


def failure(link: SshLink) -> str:
    """Wait for the end of a link that must not open; the message."""
    assert read(link) == b""
    link.stream_ended()
    assert link.failure() is not None
    return str(link.failure())
