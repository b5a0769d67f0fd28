"""Leases: who stays silent is given up, on both sides of a link; and who is only slow, or was told to wait, is not."""

from __future__ import annotations

import os
import re
import signal
import threading

import pytest
from launching import parent_of, program, state_of, through_rsh, wait_until

LOCAL = ["--oversubscribe", "-n", "2"]
REMOTE = [*through_rsh("alpha", "beta"), "-n", "2"]
WHERE = pytest.mark.parametrize("where", [LOCAL, REMOTE], ids=["local", "two hosts"])
SHORT = ["--heartbeat", "0.2", "--lease", "1"]
LONGER = ["--heartbeat", "0.5", "--lease", "4"]
ENDLESS = ["sh", "-c", "setsid sleep 1000 & echo ready $$; exec sleep 1001"]  # with a grandchild in its own session
EXIT_LOST = 205  # documented


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T")


def given_up(job, words):
    ended = job.end()
    assert ended.code == EXIT_LOST, ended.err
    (silence,) = re.findall(r"hear[a-z]* .* for (\S+) s", ended.err)
    assert float(silence) < 10, "by the lease that was given, not by the usual one of 15 s"
    assert re.search(r"^mslaunch: the host was lost while ranks ran there on \S+, after", ended.err, re.M), ended.err
    assert re.search(words, ended.err), ended.err
    return ended


def ended_as_lost(job, words):
    given_up(job, words)
    job.wait_gone()


@pytest.mark.parametrize("guard_too", [False, True], ids=["agent", "both"])
@WHERE
def test_an_agent_that_is_stopped_for_ever(start, where, guard_too):
    """The launcher gives it up, and its guard kills it and all that it has started.

    If both are stopped, a new agent kills the old one, and continues the guard.
    """
    job = start([*where, *SHORT, *ENDLESS])
    job.expect(b"\n", 2)
    agent = parent_of(job.pids()[-1])
    if guard_too:
        stop(parent_of(agent))
    stop(agent)
    ended_as_lost(job, rf"nothing was heard from \S+ for \d\S* s: .* its agent \(process {agent} there\) stopped\?")


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("UP", "nothing was heard from beta for"),
        ("DOWN", "its agent heard nothing from mslaunch for"),
        ("", "nothing was heard from beta for|heard nothing"),
    ],
)
def test_what_carries_a_link_is_stopped_for_ever(start, way, words):
    """As a network that is cut in one direction, or in both; the agent ends the ranks there."""
    job = start([*REMOTE, *SHORT, *ENDLESS], env={"RSH_RELAY": "beta"})
    job.expect(b"\n", 2)
    relays = [pid for pid, line in job.left().items() if f"--pass {way}" in line and not line.startswith("sh")]
    for pid in relays:
        stop(pid)
    try:
        ended = given_up(job, words)
        wait_until(lambda: not set(job.left()) - set(relays))
    finally:
        for pid in relays:
            os.kill(pid, signal.SIGKILL)
    assert "ended by mslaunch: rank 0" in ended.err
    job.wait_gone()


@WHERE
def test_a_guard_that_is_stopped_for_ever(start, where, tmp_path):
    """The job goes on, and when it is over the agent continues its guard, which then ends too."""
    job = start([*where, *SHORT, *program("wait", tmp_path / "go")])
    job.expect(b"\n", 2)
    stop(parent_of(parent_of(job.pids()[-1])))
    (tmp_path / "go").touch()
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")
    job.wait_gone()


@WHERE
def test_an_alarm_that_somebody_sends_to_a_guard_ends_nothing(start, where):
    """Its timer is for agents that are stopped; any process of the user can send the same signal."""
    job = start([*where, *SHORT, "sh", "-c", "echo ready $$; sleep 2.5"])
    job.expect(b"\n", 2)
    agent = parent_of(job.pids()[-1])
    os.kill(parent_of(agent), signal.SIGALRM)
    stop(agent)
    os.kill(parent_of(agent), signal.SIGALRM)
    os.kill(agent, signal.SIGCONT)
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")


@WHERE
def test_a_launcher_that_is_stopped_for_ever(start, where):
    """Its agents end all; and should it be continued, it says why."""
    job = start([*where, *SHORT, "--grace", "0.1", *ENDLESS])
    job.expect(b"\n", 2)
    stop(job.pid)
    carriers = {job.pid, *(pid for pid, words in job.left().items() if parent_of(pid) == job.pid and "rsh" in words)}
    wait_until(lambda: set(job.left()) <= carriers, tell=lambda: f"{job.left()}")
    job.send(signal.SIGCONT)
    ended_as_lost(job, "its agent heard nothing from mslaunch for")


@pytest.mark.parametrize("who", ["launcher", "agent", "both"])
def test_a_short_stop_is_harmless(start, who, tmp_path):
    job = start([*REMOTE, *LONGER, *program("wait", tmp_path / "go")])
    job.expect(b"\n", 2)
    agents = {parent_of(pid) for pid in job.pids()}
    stopped = {"launcher": {job.pid}, "agent": agents, "both": {job.pid, *agents}}[who]
    for pid in stopped:
        stop(pid)
    threading.Event().wait(1.2)  # twice a heartbeat
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")


@WHERE
def test_a_whole_job_may_be_stopped_for_long(start, where, tmp_path):
    """As batch systems do to let another job run; agents are stopped first here, and continued last."""
    job = start([*where, *SHORT, *program("wait", tmp_path / "go")])
    job.expect(b"\n", 2)
    agents = {parent_of(pid) for pid in job.pids()}
    slept = {parent_of(agent): times_slept(parent_of(agent)) for agent in agents}
    for agent in agents:
        stop(agent)
    wait_until(lambda: all(times_slept(guard) > before for guard, before in slept.items()))
    for pid in (job.pid, *slept):
        stop(pid)
    threading.Event().wait(3.0)
    for pid in (*slept, job.pid):
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda pid=pid: state_of(pid) != "T")
    for agent in agents:
        os.kill(agent, signal.SIGCONT)
    (tmp_path / "go").touch()
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")


def times_slept(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))


@WHERE
def test_control_z_costs_no_lease(start, where, tmp_path):
    """Agents are told before the launcher stops; the ranks are stopped as well, and all goes on after three leases."""
    job = start([*where, *SHORT, *program("wait", tmp_path / "go")])
    job.expect(b"\n", 2)
    for _ in range(2):
        job.send(signal.SIGTSTP)
        for pid in (job.pid, *job.pids()):
            wait_until(lambda pid=pid: state_of(pid) == "T")
        threading.Event().wait(1.5)
        job.send(signal.SIGCONT)
        for pid in (job.pid, *job.pids()):
            wait_until(lambda pid=pid: state_of(pid) in "SR")
    (tmp_path / "go").touch()
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")


def test_without_a_lease_nobody_is_given_up(start, tmp_path):
    """--lease 0 is for debuggers."""
    job = start([*REMOTE, "--lease", "0", *program("wait", tmp_path / "go")])
    job.expect(b"\n", 2)
    agent = parent_of(job.pids()[0])
    stop(agent)
    stop(job.pid)
    threading.Event().wait(1.0)
    for pid in (agent, job.pid):
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")


@WHERE
def test_who_is_only_busy_is_not_given_up(start, where):
    """Output that the terminal does not take, and 50 processes to start, with a short lease."""
    words = [*where, "--heartbeat", "0.4", "--lease", "2", "-q"]
    words[words.index("-n") + 1] = "50"
    job = start([*words, "--oversubscribe", *program("spew", 5_000)])
    threading.Event().wait(4.5)  # nobody reads, for two leases
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")
    assert len(ended.out) >= 50 * 5_000
