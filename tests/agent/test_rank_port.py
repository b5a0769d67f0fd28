"""AWAIT: an agent says when a rank listens at a port, and not when somebody else does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from agents import TestedAgent, plan

from mslaunch.agent.services import rank_port
from mslaunch.agent.services.rank_port import _RankPort
from mslaunch.protocol import control, frames

#: listens at a free port, tells which it is, and goes on
LISTENS = "import signal, socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
STAYS = "signal.pause()"
NOBODY = 65534


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", text)


def started(agent: TestedAgent, text: str) -> tuple[int, int]:
    """The pid of rank 0, and the port that it has printed."""
    agent.launch(plan(*python(text), env=("MSLAUNCH_NODE=1@n0", "OMPI_COMM_WORLD_RANK=0")))
    pid = control.unpack_number(agent.expect(frames.STARTED, 0).payload)
    return pid, int(agent.expect(frames.STDOUT, 0).payload)


def await_port(agent: TestedAgent, pid: int, port: int) -> None:
    agent.send(frames.AWAIT, 0, b"%d %d" % (pid, port))


def test_the_rank_itself_listens(agent: TestedAgent) -> None:
    await_port(agent, *started(agent, LISTENS + STAYS))
    assert agent.expect(frames.SERVES).rank == 0


def test_a_child_of_the_rank_listens(agent: TestedAgent) -> None:
    text = f"import os, signal\nif os.fork():\n    signal.pause()\nexec({LISTENS + STAYS!r})"
    await_port(agent, *started(agent, text))
    assert agent.expect(frames.SERVES).rank == 0


def test_what_has_left_the_family_of_the_rank_counts_by_its_variables(agent: TestedAgent) -> None:
    text = f"""
import os, signal
if os.fork():
    os.wait()
    signal.pause()
os.setsid()
if os.fork():
    os._exit(0)
exec({LISTENS + STAYS!r})
"""
    await_port(agent, *started(agent, text))
    assert agent.expect(frames.SERVES).rank == 0


@pytest.fixture(params=["of this user", "of another user"])
def stranger(request: Any) -> Iterator[int]:
    """A port at which a process listens that no rank has started."""
    other = {"user": NOBODY, "group": NOBODY} if request.param == "of another user" else {}
    if other and os.geteuid():
        pytest.skip("only root can start a process of another user")
    argv = ["/usr/bin/python3" if other else sys.executable, "-S", "-c", LISTENS + STAYS]
    env = {"OMPI_COMM_WORLD_RANK": "0"}
    if other:  # who knows the number of the job can claim to be of it, and root can read that
        env["MSLAUNCH_NODE"] = "1@n0"
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, cwd="/", **other)
    assert process.stdout
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_the_port_of_a_stranger_does_not_count(agent: TestedAgent, stranger: int) -> None:
    """Workers would hand their work, and what else they send to their head, to whoever is there first."""
    pid, port = started(agent, LISTENS + STAYS)
    await_port(agent, pid, stranger)
    text = agent.expect(frames.NOTICE).payload.decode()
    assert text.startswith(f"port {stranger} is held by process ") and text.endswith("rank 0, which is waited for")
    await_port(agent, pid, port)  # the agent is asked again, as after a restart: it answers for this one only
    assert agent.expect(frames.SERVES).rank == 0
    assert not [frame for frame in agent.frames if frame.kind in (frames.SERVES, frames.NOTICE)]


class Link:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, kind: int, rank: int) -> None:
        self.said.append((kind, rank))

    def notice(self, rank: int, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(("user", "counts"), [(0, True), (NOBODY, False)])
def test_a_process_that_cannot_be_looked_into(monkeypatch: Any, user: int, counts: bool) -> None:
    """The rank has started a program of root, such as sudo: the port counts if it is root's, and the user is told."""
    link: Any = Link()
    monkeypatch.setattr(rank_port, "holder", lambda found, pids: 0 if list(pids)[:1] == [os.getpid()] else None)
    monkeypatch.setattr(rank_port, "_users", lambda pids: {0})
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(rank_port, "sockets", lambda number: {"socket:[1]": user})
        looked = [_RankPort(link, 3, os.getpid(), port).look() for _ in range(2)]
    assert looked == [counts, counts]
    texts = [text for text in link.said if isinstance(text, str)]
    told = "whether rank 3 listens there cannot be told" if counts else "but not by rank 3"
    assert texts and all(told in text for text in texts)
    assert ((frames.SERVES, 3) in link.said) == counts


def test_once_told_is_enough(monkeypatch: Any) -> None:
    link: Any = Link()
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(python(STAYS.replace("signal", "__import__('signal')", 1)))
        try:
            port = _RankPort(link, 0, process.pid, server.getsockname()[1])
            assert [port.look(), port.look()] == [False, False]
        finally:
            process.kill()
            process.wait()
    assert len(link.said) == 1
