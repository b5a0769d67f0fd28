"""Stacks of a running job for whoever asks its controller: of real processes, by a real agent, and nothing ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import wait_asleep

from mslaunch.datamodel.jobmap import Endpoint, JobMap, Node, Placement
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, World
from mslaunch.datamodel.request import LinkPolicy, OutputPolicy
from mslaunch.launcher.agents.start_agents import AgentPool, OpenLinks, close_all
from mslaunch.launcher.job import events
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.job_actions import JobAgents
from mslaunch.launcher.job.job_state import RUNNING, JobState
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.terminal import Console
from mslaunch.protocol import frames
from mslaunch.runtime.loop import Loop

PROGRAM = """
import os, signal, sys, time
open(sys.argv[1] + os.environ["NUMBER"], "w").close()
if os.environ["NUMBER"] == "1":
    time.sleep(1000)
signal.pause()
"""


class Job:
    """Three ranks that do nothing, one of them otherwise than the others."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        self.loop = loop
        self.folder = folder
        node = Node("here", 3, "-H", local=True)
        null = os.open(os.devnull, os.O_RDWR)
        console = Console(loop, null, quiet=True, verbose=False)
        self.links = OpenLinks(loop, LinkPolicy())
        self.peers = AgentPool(loop, LinkPolicy(), {}, console, loop.run, links=self.links).require([node])
        self.state = JobState(JobMap((node,), tuple(Placement(rank, 0, 0, rank) for rank in range(3)), 3), grace=1.0)
        terminals = {frames.STDOUT: console.stderr, frames.STDERR: console.stderr}
        output = Output(OutputPolicy(), PatternValues([("here", 0)] * 3), terminals, print)

        def plans(endpoint: Endpoint) -> list[NodePlan]:
            ranks = tuple(RankPlan(rank, 0, (f"NUMBER={rank}",)) for rank in range(3))
            argv = (sys.executable, "-Sc", PROGRAM, f"{folder}/")
            return [NodePlan(ranks, (AppPlan(argv, "/"),), (), world=World())]

        agents = JobAgents(self.peers)
        self.controller = JobController(loop, agents, self.state, output, JobPlans(plans), (null, ()), console)
        self.texts: list[str] = []

    def begin(self) -> None:
        self.controller.post(events.Began())
        self.controller._startup.begin()
        assert self.loop.run(lambda: self.state.table.all_started, 20)
        assert self.loop.run(lambda: len(list(self.folder.iterdir())) == 3, 20)
        for rank in self.state.table.ranks.values():
            assert rank.pid
            wait_asleep(rank.pid)  # a process that has only begun does something else

    def ask(self) -> None:
        self.controller.collect_stacks(self.texts.append)

    def end(self) -> None:
        self.controller.post(events.Interrupted("SIGINT"))
        assert self.loop.run(lambda: self.state.finished, 20)
        self.controller.finish()
        assert close_all(self.peers) == []
        self.links.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


def test_a_job_is_asked_twice_and_goes_on(loop: Loop, tmp_path: Path) -> None:
    job = Job(loop, tmp_path)
    job.begin()
    for count in (2, 3):
        job.ask()
        if count == 2:
            job.ask()
        assert loop.run(lambda count=count: len(job.texts) == count, 10)  # type: ignore[misc]
    assert job.texts[0] == job.texts[1]
    for text in job.texts:
        assert text.startswith("mslaunch: rank 1 in ") and "; 2 ranks in " in text.partition("\n")[0], text
        assert "\n  rank 1 on here, process " in text and "\n  ranks 0, 2, of which rank 0 on here, " in text
    assert job.state.phase == RUNNING and not job.state.failure
    assert not any(rank.ended for rank in job.state.table.ranks.values())
    job.end()


def test_who_asks_too_early_or_too_late_is_told(loop: Loop, tmp_path: Path) -> None:
    job = Job(loop, tmp_path)
    job.ask()
    assert job.texts == ["mslaunch: no rank runs\n"]
    job.begin()
    job.ask()
    job.end()
    assert len(job.texts) == 2, "an answer comes once, at the end of the job at the latest"
    for count in (3, 4):  # also where the round before had no answer
        job.ask()
        assert job.texts[count - 1 :] == ["mslaunch: no rank runs\n"]
