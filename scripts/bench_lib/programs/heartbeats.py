"""The launcher's loop with N links, nothing but signs of life on them: its CPU time for each heartbeat.

    heartbeats.py LINKS HEARTBEAT BEATS

A child process is all the agents: it says HELLO, and answers each sign of life.
Prints the launcher's CPU seconds for one heartbeat of all links.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time
from typing import Any

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.launcher.agents.connection import READY, AgentConnection
from mslaunch.launcher.agents.start_agents import OpenLinks
from mslaunch.protocol import control, frames
from mslaunch.runtime.loop import Loop
from mslaunch.transport.base import Link

HELLO = frames.encode(frames.HELLO, payload=control.pack_record(control.Hello("n", 7, 2, 2, "3.11", ())))
ALIVE, LEASE = frames.encode(frames.ALIVE), frames.encode(frames.LEASE)


def agents(pairs: list[tuple[int, int]]) -> None:
    """Until the launcher has gone."""
    poll = select.epoll()
    up = dict(pairs)
    for reader, writer in pairs:
        poll.register(reader, select.EPOLLIN)
        os.write(writer, frames.MAGIC + HELLO)
    while True:
        for fd, _ in poll.poll():
            data = os.read(fd, 1 << 16)
            if not data:
                return
            if data == LEASE:
                os.write(up[fd], ALIVE)


def main(count: int, heartbeat: float, beats: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    downs, ups = ([os.pipe() for _ in range(count)] for _ in range(2))
    if not os.fork():
        for (_, ours), (mine, _) in zip(downs, ups):
            os.close(ours)
            os.close(mine)
        try:
            agents([(down, up) for (down, _), (_, up) in zip(downs, ups)])
        finally:
            os._exit(0)
    with Loop() as loop:
        links = OpenLinks(loop, LinkPolicy(heartbeat=heartbeat, lease=20 * heartbeat))
        ends: list[Any] = []
        connections = []
        for (_, writer), (reader, _) in zip(downs, ups):
            connection = AgentConnection(loop, Link(Node("n", 1, "-H"), reader, writer))
            connection.attach(ends.append)
            links.add(connection)
            connections.append(connection)
        loop.run(lambda: all(connection.phase == READY for connection in connections))
        loop.run(lambda: False, 1.5 * heartbeat)
        before = time.process_time()
        loop.run(lambda: False, beats * heartbeat)
        spent = time.process_time() - before
    assert not ends and all(connection.open for connection in connections)
    print(spent / beats)


main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
