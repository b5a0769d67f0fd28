"""Files that are sent to an agent, session directories of its ranks, and their removal after a kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from agents import plan, wait_gone

from mslaunch.datamodel.node_plan import AppPlan
from mslaunch.protocol import control, frames


@pytest.fixture
def sent(boot, tmp_path):
    """An agent that has been sent the file `tool`."""
    agent = boot(TMPDIR=str(tmp_path))
    agent.begin()
    agent.send(frames.FILE, payload=control.pack_record(control.FileHead("tool", 0o755)))
    for piece in (b"#!/bin/sh\necho $0 $PWD $OMPI_FILE_LOCATION\n", b"exec sleep 1000\n", b""):
        agent.send(frames.DATA, payload=piece)
    assert control.unpack_record(control.Stored, agent.expect(frames.STORED).payload) == ("", "")
    return agent


def running(agent, ranks=2):
    """The pids of ranks that run `tool` in their session directories, and these."""
    given = plan("./tool", ranks=ranks, session=True, pty="no")
    agent.launch(given._replace(apps=(AppPlan(("./tool",), "/", in_session=True),)))
    pids = [int(agent.expect(frames.STARTED, rank).payload) for rank in range(ranks)]
    folders = []
    for rank in range(ranks):
        name, pwd, location = agent.output(frames.STDOUT, rank, 1).decode().split()
        assert (name, pwd) == ("./tool", location)
        folders.append(Path(location))
    return pids, folders


def test_ranks_start_in_their_own_directories(sent, tmp_path):
    pids, folders = running(sent)
    assert len(set(folders)) == 2 and all(tmp_path in folder.parents for folder in folders)
    assert [os.readlink(f"/proc/{pid}/cwd") for pid in pids] == list(map(str, folders))
    sent.hang_up()
    assert sent.wait() == 0
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_if_nothing_was_started(sent, tmp_path):
    assert len(os.listdir(tmp_path)) == 1
    sent.hang_up()
    assert sent.wait() == 0
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_of_a_file_that_was_cut_off(boot, tmp_path):
    agent = boot(TMPDIR=str(tmp_path))
    agent.begin()
    for name in ("whole", "half"):
        agent.send(frames.FILE, payload=control.pack_record(control.FileHead(name, 0o755)))
        agent.send(frames.DATA, payload=b"x" * 100000)
        if name == "whole":
            agent.send(frames.DATA)
    agent.expect(frames.STORED)
    agent.hang_up()
    assert agent.wait() == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("victim", ["agent", "guard"])
def test_nothing_is_left_if_one_of_the_two_is_killed(boot, tmp_path, victim):
    agent = boot(TMPDIR=str(tmp_path))
    hello = agent.begin()
    agent.send(frames.FILE, payload=control.pack_record(control.FileHead("tool", 0o755)))
    agent.send(frames.DATA, payload=b"#!/bin/sh\necho $0 $PWD $OMPI_FILE_LOCATION\nexec sleep 1000\n")
    agent.send(frames.DATA)
    pids, _ = running(agent)
    os.kill(hello.pid if victim == "agent" else agent.process.pid, signal.SIGKILL)
    agent.wait()
    wait_gone(hello.pid, *pids)
    assert os.listdir(tmp_path) == []


def test_an_error_is_reported_and_the_agent_continues(boot, tmp_path):
    agent = boot(TMPDIR=str(tmp_path / "gone"))
    agent.begin()
    agent.send(frames.FILE, payload=control.pack_record(control.FileHead("x", 0o600)))
    agent.send(frames.DATA, payload=b"x")
    agent.send(frames.DATA)
    error, todo = control.unpack_record(control.Stored, agent.expect(frames.STORED).payload)
    assert "No such file" in error and "TMPDIR" in todo
    agent.launch(plan("true", session=True))
    assert agent.exit(0).code == 126


def test_many_errors_do_not_stop_the_agent(boot, tmp_path):
    """More names than the guard's pipe holds; the guard reads it only at the end."""
    agent = boot(TMPDIR=str(tmp_path / "gone"))
    agent.begin()
    for number in range(3000):
        agent.send(frames.FILE, payload=control.pack_record(control.FileHead(f"file-{number}", 0o600)))
    for _ in range(3000):
        agent.expect(frames.STORED)
    agent.hang_up()
    assert agent.wait() == 0
