"""Hosts, agents and launchers that fall silent while every connection stays open; and Ctrl-Z, which costs no lease.

After each test the fixture looks at the process table of every host: nothing is left but its sshd.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from clusters import MARKS, kill, wait_until
from test_hosts_ends import ENDLESS, EXIT_LOST, agent_of, ready, running

pytestmark = MARKS
HOSTS = ["n01", "n02", "n03"]
SHORT = ("--heartbeat", "0.3", "--lease", "1.5", "--grace", "0.2")
BOUND = 10.0  #: seconds for what should take three
HEARD_NOTHING = "its agent heard nothing from mslaunch for"


def begun(start, cluster):
    job = start("-H", ",".join(HOSTS), *SHORT, *ENDLESS)
    ready(job, cluster, HOSTS)
    return job


def stop(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def given_up(job, words):
    ended = job.end(BOUND)
    assert ended.code == EXIT_LOST, ended.err
    assert re.search(r"^mslaunch: the host was lost while ranks ran there on n02", ended.err, re.M), ended.err
    assert re.search(words, ended.err), ended.err
    assert "ended by mslaunch: ranks 0, 2" in ended.err


def no_rank_left(cluster, host):
    wait_until(lambda: not (running(cluster, host, "sleep 1000") or running(cluster, host, "sleep 1001")), BOUND)


def test_an_agent_that_is_stopped_for_ever(start, four):
    """Its guard kills it, and what it has started."""
    job = begun(start, four)
    stop(agent_of(four, "n02"))
    given_up(job, r"nothing was heard from n02 for \d\S* s: is it up, .* agent \(process \d+ there\) stopped\?")


def test_an_sshd_that_is_stopped_for_ever(start, four):
    """Only that process stays, which is not ours."""
    job = begun(start, four)
    sessions = list(running(four, "n02", "sshd: root"))
    stop(*sessions)
    try:
        given_up(job, "nothing was heard from n02")
        no_rank_left(four, "n02")
    finally:
        for pid in sessions:
            kill(pid)


@pytest.mark.parametrize(
    ("where", "away", "words"),
    [("n02", "10.77.0.1", "nothing was heard from n02"), ("head", "10.77.1.2", f"nothing was heard|{HEARD_NOTHING}")],
    ids=["from the host", "to the host"],
)
def test_a_network_that_is_cut_in_one_direction(start, four, where, away, words):
    job = begun(start, four)
    four.on(where, f"ip route add blackhole {away}/32")
    try:
        given_up(job, words)
        no_rank_left(four, "n02")
    finally:
        four.on(where, f"ip route del blackhole {away}/32")


def test_a_network_that_is_cut_for_good(start, four):
    job = begun(start, four)
    four("cut", "n02")
    try:
        given_up(job, "nothing was heard from n02")
        no_rank_left(four, "n02")
    finally:
        four("heal", "n02")


def test_a_launcher_that_is_stopped_for_ever(start, four):
    """The ranks are ended on all hosts; and should it be continued, it says why."""
    job = begun(start, four)
    launcher = job.launcher
    stop(launcher)
    for host in HOSTS:
        no_rank_left(four, host)
    os.kill(launcher, signal.SIGCONT)
    ended = job.end(BOUND)
    assert ended.code == EXIT_LOST
    assert HEARD_NOTHING in ended.err


def test_control_z_costs_no_lease(start, four):
    """Over SSH the agents know before the launcher stops: it waits for their answers."""
    script = "echo ready; while ! [ -e go ]; do sleep 0.05; done"
    job = start("-H", ",".join(HOSTS), *SHORT, "sh", "-c", script)
    job.expect(b"ready", 3)
    launcher = job.launcher
    os.kill(launcher, signal.SIGTSTP)
    wait_until(lambda: Path(f"/proc/{launcher}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    threading.Event().wait(3.0)  # two leases
    os.kill(launcher, signal.SIGCONT)
    four.on("n01", f"cd {job.cwd}; touch go")
    ended = job.end()
    assert (ended.code, ended.err) == (0, "")


def test_a_silent_host_is_replaced(start, four, tmp_path):
    """A lost lease is a lost host: the group is started again, and the spare takes its place."""
    script = '[ "$MSLAUNCH_ATTEMPT" = 2 ] && exec hostname; echo ready; exec sleep 1001'
    words = ("--restart", "group", "--connect-timeout", "5", "--hostfile", "hosts", *SHORT)
    (tmp_path / "hosts").write_text("n01 slots=1\nn02 slots=1\nn03 slots=1 spare\n")
    job = start(*words, "-n", "2", "sh", "-c", script)
    job.expect(b"ready", 2)
    four("cut", "n02")
    try:
        began = time.monotonic()
        ended = job.end(30)
        assert ended.code == 0, ended.err
        assert [line for line in ended.lines if line != "ready"] == ["n01", "n03"]
        assert "n03 takes the place of n02" in ended.err
        assert time.monotonic() - began < 15
        no_rank_left(four, "n02")
    finally:
        four("heal", "n02")
