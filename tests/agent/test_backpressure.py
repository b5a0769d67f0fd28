"""A terminal that takes nothing: ranks that print are paused at their agent, and other frames still arrive."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mslaunch.datamodel.jobmap import Endpoint, JobMap, Node, Placement
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, World
from mslaunch.datamodel.request import LinkPolicy, OutputPolicy
from mslaunch.launcher.agents.start_agents import AgentPool, OpenLinks, close_all
from mslaunch.launcher.job import events
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.job_actions import JobAgents
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.terminal import Console, OutputFd
from mslaunch.protocol import frames
from mslaunch.runtime.fd_writer import HIGH
from mslaunch.runtime.loop import Loop

PROGRAM = """
import os, sys
if os.environ["NUMBER"] == "2":
    open(sys.argv[1]).read()
    sys.exit(3)
while True:
    os.write(1, b"x" * 65535 + b"\\n")
"""
#: what may be under way: the agent's writer, its link (a pipe of 1 MiB) and reads that were begun; and as much as makes
#: the launcher say PAUSE
BOUND = HIGH + HIGH + (1 << 20) + (2 << 20)


class Job:
    """Two ranks that print for ever and one that ends when `gate` is opened; nobody reads standard output."""

    def __init__(self, loop: Loop, gate: Path) -> None:
        node = Node("here", 3, "-H", local=True)
        self.links = OpenLinks(loop, LinkPolicy())
        pool = AgentPool(loop, LinkPolicy(), {}, Console(loop, 2, True, False), loop.run, links=self.links)
        self.peers = pool.require([node])
        self.agents = JobAgents(self.peers)
        placements = tuple(Placement(rank, 0, 0, rank) for rank in range(3))
        self.state = JobState(JobMap((node,), placements, 3), grace=1.0)
        self.fds = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        console = Console(loop, null, quiet=True, verbose=False)
        terminals = {frames.STDOUT: OutputFd(loop, self.fds[1], "out", print), frames.STDERR: console.stderr}
        self.output = Output(OutputPolicy(), PatternValues([("here", 0)] * 3), terminals, print)
        self.gate = gate

        def plans(endpoint: Endpoint) -> list[NodePlan]:
            ranks = tuple(RankPlan(rank, 0, (f"NUMBER={rank}",)) for rank in range(3))
            return [NodePlan(ranks, (AppPlan((sys.executable, "-c", PROGRAM, str(gate)), "/"),), (), world=World())]

        stdin = (os.open(os.devnull, os.O_RDONLY), ())
        self.controller = JobController(loop, self.agents, self.state, self.output, JobPlans(plans), stdin, console)
        self.output.on_progress(self.controller.on_drained)


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


def test_exits_arrive_while_the_terminal_takes_nothing(loop: Loop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = Job(loop, gate)
    most: list[int] = []

    def seen(until: Any) -> bool:
        most.append(job.output.pending)
        return bool(until())

    job.controller.post(events.Began())
    job.controller._startup.begin()
    loop.run(lambda: seen(lambda: job.agents.paused))
    held = -1
    while held != job.output.pending:  # until nothing more comes
        held = job.output.pending
        loop.run(lambda: seen(lambda: False), 0.5)
        assert max(most) < BOUND
    assert held > HIGH
    with open(gate, "w"):
        pass
    assert loop.run(lambda: seen(lambda: job.state.table.ranks[2].ended), 20), (
        "it waits behind output that nobody takes"
    )
    assert job.state.table.ranks[2].status.code == 3
    assert job.agents.paused and max(most) < BOUND
    # a late reader gets all of it, and the job ends as after any failure
    loop.reader(job.fds[0], lambda: os.read(job.fds[0], 1 << 20))
    assert loop.run(lambda: job.state.finished, 20)
    assert close_all(job.peers) == []
    job.links.close()
