"""A peer: large frames go down whole, in time that grows with their size only."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mslaunch.datamodel.hosts import Node
from mslaunch.launcher.agents.connection import AgentConnection
from mslaunch.protocol import frames
from mslaunch.runtime.loop import Loop


class Link:
    """Two pipes."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer, self.node, self.first = reader, writer, Node("n1", 1, "-H"), b""

    def close(self) -> None:
        for fd in (self.reader, self.writer):
            os.close(fd)


@pytest.mark.parametrize("size", [0, 1 << 18, (1 << 18) + 1, 1 << 24])
def test_frames_of_any_size_go_down_whole_and_in_order(size: int) -> None:
    (ours, up), (down, mine) = os.pipe(), os.pipe()
    decoder = frames.Decoder()
    got: list[frames.Frame] = []
    link: Any = Link(ours, mine)
    with Loop() as loop:
        peer = AgentConnection(loop, link)
        os.set_blocking(down, False)
        loop.reader(down, lambda: got.extend(decoder.feed(os.read(down, 1 << 16))))
        payload = bytes(range(256)) * (size >> 8) + b"x" * (size & 255)
        for kind in (frames.RELEASE, frames.ANSWER):
            peer.send(frames.encode(kind, payload=payload))
        loop.run(lambda: len(got) == 2)
        peer.close()
    assert got == [frames.Frame(kind, frames.NO_RANK, payload) for kind in (frames.RELEASE, frames.ANSWER)]
    assert peer.pending == 0
    for fd in (up, down):
        os.close(fd)
