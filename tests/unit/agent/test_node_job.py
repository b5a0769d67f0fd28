"""The job of one node, without processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mslaunch.agent import node_job
from mslaunch.agent.launcher_link import AgentContext, LauncherLink
from mslaunch.agent.node_job import NodeJob
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan
from mslaunch.errors import LaunchError
from mslaunch.host import programs
from mslaunch.protocol import frames
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    import pytest

BUSY = frames.encode(frames.ALIVE, payload=frames.BUSY)
IDLE = frames.encode(frames.ALIVE)


def test_the_launcher_knows_of_work_before_a_program_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may take longer than a lease to find it."""
    down, up = os.pipe(), os.pipe()
    received: list[frames.Frame] = []
    said: list[bytes] = []

    def command(*_: Any) -> Any:
        said.append(os.read(up[0], 1 << 16))
        os.write(up[1], b"?")
        raise LaunchError("it is not there")

    monkeypatch.setattr(node_job, "command", command)
    with Loop() as loop:
        link = LauncherLink(loop, (down[0], up[1]), received.append, lambda: None, lambda on: None)
        os.write(down[1], frames.encode(frames.LEASE, payload=b"5 15"))
        assert loop.run(lambda: bool(received), 20)

        def need(name: str, then: Any) -> None:
            then()

        session: Any = None
        context = AgentContext(loop, link, dict(os.environ), session, need)
        job = NodeJob(context, lambda: None)
        job.launch(NodePlan((RankPlan(0, 0, ()),), (AppPlan(("nothing",), "/"),), ()), {})
        loop.run(lambda: not link.pending, 20)
        link.close()
    assert said[0].endswith(BUSY)
    assert os.read(up[0], 1 << 16).endswith(IDLE)
    for fd in (*down, *up):
        os.close(fd)


def test_a_program_is_looked_for_once_for_all_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one PATH and directory; another rank of the same program may have others."""
    found: list[str] = []

    def command(app: AppPlan, rank: RankPlan, index: bool, path: str, wdir: str) -> tuple[str, list[str]]:
        found.append(path)
        return programs.command(app, rank, index, path, wdir)

    monkeypatch.setattr(node_job, "command", command)
    monkeypatch.setattr(NodeJob, "_programs", lambda *_: [])
    down, up = os.pipe(), os.pipe()
    with Loop() as loop:
        link = LauncherLink(loop, (down[0], up[1]), lambda frame: None, lambda: None, lambda on: None)
        session: Any = None
        context = AgentContext(loop, link, {"PATH": "/usr/bin:/bin"}, session, lambda name, then: then())
        job = NodeJob(context, lambda: None)
        ranks = (*(RankPlan(rank, 0, ()) for rank in range(3)), RankPlan(3, 0, ("PATH=/bin:/usr/bin",)))
        job.launch(NodePlan(ranks, (AppPlan(("true",), "/"),), ()), {})
        assert sorted(job.pids()) == [0, 1, 2, 3]
        assert found == ["/usr/bin:/bin", "/bin:/usr/bin"]
        assert loop.run(lambda: job.over, 20)
        job.restart(0, 1)
        assert loop.run(lambda: len(found) == 3 and job.over, 20), "the file may be another one now"
        link.close()
    for fd in (*down, *up):
        os.close(fd)
