"""RESTART over the link: the same rank starts again, after its last output."""

from __future__ import annotations

import os
import signal

from agents import plan, state_of

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.protocol import frames

#: fails until it has been started again twice
SCRIPT = """\
echo life ${OMPI_MCA_orte_num_restarts:-0} of $NUMBER, attempt ${MSLAUNCH_ATTEMPT-1}
[ "$OMPI_MCA_orte_num_restarts" = 2 ] || exit 3
"""


def test_a_rank_starts_again(agent):
    agent.launch(plan("sh", "-c", SCRIPT, ranks=2, pty="no"))
    pids = set()
    for life in range(3):
        if life:
            agent.send(frames.RESTART, 1, str(life).encode())
        pids.add(int(agent.expect(frames.STARTED, 1).payload))
        assert agent.output(frames.STDOUT, 1) == f"life {life} of 1, attempt {life + 1}\n".encode()
        assert agent.output(frames.STDERR, 1) == b""
        assert agent.exit(1) == ExitStatus(3 if life < 2 else 0, None)
    assert len(pids) == 3
    assert agent.exit(0).code == 3  # the other one was left alone
    agent.hang_up()
    assert agent.wait() == 0


def test_frames_of_both_processes_arrive_in_order(agent):
    """STARTED of the new process follows the ends of both streams of the old one, though RESTART was sent earlier."""
    agent.launch(plan("sh", "-c", "seq 50000; kill -KILL $$", pty="no"))
    agent.expect(frames.STARTED, 0)
    assert agent.exit(0).signal == signal.SIGKILL
    agent.send(frames.RESTART, 0, b"1")
    agent.expect(frames.STARTED, 0)
    before = [frame for frame in agent.frames if frame.kind in (frames.STDOUT, frames.STDERR)]
    assert sum(not frame.payload for frame in before) >= 2 and before[0].payload
    agent.send(frames.END, payload=b"0")


def test_an_orphan_does_not_delay_the_restart(agent):
    """It writes to the stream of the dead rank without end: its output is forwarded for half a second only."""
    orphan = "while echo here; do sleep 0.01; done"
    agent.launch(plan("sh", "-c", f'[ -n "$OMPI_MCA_orte_num_restarts" ] || {{ ({orphan}) & exit 3; }}', pty="no"))
    assert agent.exit(0).code == 3
    agent.send(frames.RESTART, 0, b"1")
    assert agent.exit(0).code == 0


def test_the_new_process_gets_an_empty_input(agent):
    """Input for the first process is lost; the new one must not wait for more."""
    agent.launch(plan("sh", "-c", 'read word; echo "$word"; exit 3', stdin=(0,), pty="no"))
    agent.send(frames.STDIN, 0, b"one\n")
    assert agent.output(frames.STDOUT, 0) == b"one\n"
    agent.exit(0)
    agent.send(frames.RESTART, 0, b"1")
    assert agent.output(frames.STDOUT, 0) == b"\n"
    assert agent.exit(0).code == 3
    agent.send(frames.STDIN, 0, b"two\n")
    taken = 0
    while taken < 8:
        taken += int(agent.expect(frames.STDIN_TAKEN, 0).payload)


def test_end_cancels_a_pending_restart(agent):
    """The restart still waits for an orphan when END arrives: the rank is not started, and the launcher learns that."""
    agent.launch(plan("sh", "-c", "sleep 1000 & echo $!; exit 3", pty="no"))
    orphan = int(agent.output(frames.STDOUT, 0, 2))
    agent.exit(0)
    agent.send(frames.RESTART, 0, b"1")
    agent.send(frames.END, payload=b"0.1")
    assert agent.exit(0).error == "the job is being ended"
    assert agent.expect(frames.STARTED, 0)  # of its forerunner
    assert not [frame for frame in agent.frames if frame.kind == frames.STARTED]
    os.kill(orphan, signal.SIGKILL)


def test_the_program_of_a_restart_is_missing(agent, tmp_path):
    thing = tmp_path / "thing"
    thing.write_text('#!/bin/sh\nrm "$0"; exit 3\n')
    thing.chmod(0o755)
    agent.launch(plan(str(thing)))
    assert agent.exit(0).code == 3
    agent.send(frames.RESTART, 0, b"1")
    ended = agent.exit(0)
    assert ended.code == 127 and "does not exist" in ended.error


def test_the_link_ends_before_the_restart(agent):
    agent.launch(plan("sh", "-c", "sleep 1000 & echo $!; exit 3", pty="no"))
    orphan = int(agent.output(frames.STDOUT, 0, 2))
    agent.exit(0)
    agent.send(frames.RESTART, 0, b"1")
    agent.hang_up()
    assert agent.wait() == 0
    assert state_of(orphan) in ("", "Z")
