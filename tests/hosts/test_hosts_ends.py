"""How jobs end on real hosts: ranks that fail, launchers and agents that are killed, hosts that lose their power.

After each test the fixture looks at the process table of every host: nothing is left but its sshd.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from contextlib import ExitStack

import pytest
from clusters import MARKS, cluster_of, kill, names_of, wait_until

pytestmark = MARKS
EXIT_LOST = 205  # documented
ENDLESS = ("sh", "-c", "setsid sleep 1000 & echo ready; exec sleep 1001")  # with a grandchild in its own session
SOON = 12.0  #: seconds after which no rank may be left: before a lease has run out (15 s)


def running(cluster, host, word):
    return [pid for pid, words in cluster.processes(host).items() if word in words]


def ready(job, cluster, hosts):
    """All ranks and their grandchildren run."""
    job.expect(b"ready", len(hosts))
    for host in hosts:
        wait_until(lambda host=host: running(cluster, host, "sleep 1000") and running(cluster, host, "sleep 1001"))


def agent_of(cluster, host):
    """The agent there: the parent of the rank, as this machine counts."""
    rank = running(cluster, host, "sleep 1001")[0]
    with open(f"/proc/{rank}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def nothing_left(cluster, began, hosts=4):
    cluster.wait_quiet(hosts, max(0.1, SOON - (time.monotonic() - began)))


# --- ranks


@pytest.mark.parametrize(("how", "code", "words"), [("exit 7", 7, "exit code 7"), ("kill -SEGV $$", 139, "SIGSEGV")])
def test_a_rank_that_fails_on_a_remote_host(run, how, code, words):
    script = f'if [ $OMPI_COMM_WORLD_RANK = 2 ]; then echo "the last words" >&2; {how}; fi; exec sleep 1000'
    ended = run("-H", "n01,n02,n03,n04", "sh", "-c", script)
    assert ended.code == code
    assert re.search(rf"^mslaunch: rank 2 .*{words}.* on n03, after", ended.err, re.M), ended.err
    assert "  | the last words" in ended.err
    assert "ended by mslaunch: ranks 0-1, 3" in ended.err
    assert ended.seconds < SOON


def test_a_rank_that_fails_after_others_have_ended(run):
    ended = run("-H", "n01,n02", "sh", "-c", "exit $OMPI_COMM_WORLD_RANK")
    assert ended.code == 1
    assert "rank 1 ended with exit code 1 on n02" in ended.err


def test_processes_that_ranks_leave_behind_are_ended(run):
    ended = run("-H", "n01,n02,n03", "sh", "-c", "setsid sleep 1000 >&- 2>&- <&- & exit 0")
    assert ended.code == 0  # and the fixture finds no sleep anywhere


# --- signals to the launcher


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 1), ("SIGTERM", 1), ("SIGHUP", 1)])
def test_a_signal_to_the_launcher(start, four, name, code):
    job = start("-H", "n01,n02,head", *ENDLESS)
    ready(job, four, ["n01", "n02", "head"])
    began = time.monotonic()
    job.process.send_signal(getattr(signal, name))
    ended = job.end()
    assert ended.code == code
    assert f"ended by {name}" in ended.err
    nothing_left(four, began)


def test_ranks_get_sigterm_first(start, four):
    job = start("-H", "n01,n02", "sh", "-c", 'trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.05; done')
    job.expect(b"ready", 2)
    job.process.send_signal(signal.SIGINT)
    ended = job.end()
    assert (ended.code, ended.out.count(b"asked")) == (1, 2)


def test_signals_for_the_ranks_reach_them_on_all_hosts(start):
    job = start("-H", "n01,n02", "sh", "-c", 'trap "exit 0" USR1; echo ready; while :; do sleep 0.05; done')
    job.expect(b"ready", 2)
    job.process.send_signal(signal.SIGUSR1)
    assert job.end().code == 0


def test_a_launcher_that_is_killed(start, four):
    job = start("-H", "n01,n02,n03,head", *ENDLESS)
    ready(job, four, ["n01", "n02", "n03", "head"])
    began = time.monotonic()
    kill(job.launcher)
    assert job.end().code == -signal.SIGKILL
    nothing_left(four, began)


def test_a_launcher_that_is_killed_while_ranks_ignore_sigterm(start, four):
    job = start("-H", "n01,n02", "sh", "-c", 'trap "" TERM; echo ready; while :; do sleep 0.05; done')
    job.expect(b"ready", 2)
    began = time.monotonic()
    kill(job.launcher)
    nothing_left(four, began)


# --- agents and hosts


@pytest.mark.parametrize("who", ["agent", "guard", "connection"])
def test_a_host_that_loses_its_agent(start, four, who):
    job = start("-H", "n01,n02,n03", *ENDLESS)
    ready(job, four, ["n01", "n02", "n03"])
    began = time.monotonic()
    agent = agent_of(four, "n02")
    others = [pid for pid in running(four, "n02", "python3 -I") if pid != agent]
    assert len(others) == 1
    sessions = running(four, "n02", "sshd: root")
    for pid in {"agent": [agent], "guard": others, "connection": sessions}[who]:
        kill(pid)
    ended = job.end()
    assert ended.code == EXIT_LOST
    assert re.search(r"^mslaunch: the host was lost while ranks ran there on n02", ended.err, re.M), ended.err
    assert "ended by mslaunch: ranks 0, 2" in ended.err
    if who == "guard":  # it kept what had left its rank's session; that is nobody's now (docs/security.md)
        wait_until(lambda: not running(four, "n02", "sleep 1001"))
        for pid in running(four, "n02", "sleep 1000"):
            kill(pid)
    nothing_left(four, began)


@pytest.mark.slow
def test_a_silent_host_ends_the_job(tmp_path):
    """It is given up after a lease, 15 s, and at most a heartbeat more; without power as with a cut cable.

    Beyond a cut, ranks are ended after the same time.  (Shorter leases: test_hosts_silent.py.)
    """
    with ExitStack() as stack:
        jobs = []
        for verb in ("kill", "cut"):  # both at one time: this is a test that waits
            cluster = stack.enter_context(cluster_of(3, tmp_path / verb))
            job = cluster.start("-H", "n01,n02,n03", *ENDLESS, cwd=tmp_path)
            stack.callback(job.destroy)
            ready(job, cluster, names_of(3))
            cluster(verb, "n02")
            jobs.append((cluster, job, time.monotonic()))
        for cluster, job, began in jobs:
            ended = job.end(60)
            assert ended.code == EXIT_LOST
            assert time.monotonic() - began < 28
            assert re.search(r"^mslaunch: the host was lost while ranks ran there on n02", ended.err, re.M), ended.err
            assert "ended by mslaunch: ranks 0, 2" in ended.err
            for host in ("n01", "n03", "head"):
                wait_until(lambda: not cluster.processes(host), 5, lambda: f"{host}: {cluster.processes(host)}")  # noqa: B023
        cut = jobs[1][0]
        wait_until(lambda: not running(cut, "n02", "sleep 100"))


def test_a_short_network_failure_is_harmless(start, four):
    script = 'echo ready; while ! [ -e go ]; do sleep 0.05; done; echo "done on $(hostname)"'
    job = start("-H", "n01,n02", "sh", "-c", script)
    job.expect(b"ready", 2)
    four("cut", "n02")
    healer = threading.Timer(1.0, lambda: four("heal", "n02"))  # packets are lost meanwhile, and sent again
    healer.start()
    try:
        four.on("n01", f"cd {job.cwd}; touch go")
        ended = job.end()
    finally:
        healer.join()
    assert (ended.code, ended.err) == (0, "")
    assert [line for line in ended.lines if line != "ready"] == ["done on n01", "done on n02"]
