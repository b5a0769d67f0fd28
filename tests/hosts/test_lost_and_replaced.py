"""Hosts that are lost while --restart group holds: real ones, whose agents are killed or whose network is cut.

What needs no real host is in launch/test_group_restart.py.  A host that falls silent is noticed after 15 s, so what
waits for that is one test with several jobs.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack

import pytest
from clusters import MARKS, cluster_of, kill, wait_until

pytestmark = MARKS
SCRIPT = (
    'echo "ready $MSLAUNCH_ATTEMPT rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)";'
    "[ $MSLAUNCH_ATTEMPT = 2 ] && exit 0; exec sleep 1001"
)
GROUP = ["--restart", "group", "--max-restarts", "1"]


def second(ended):
    """Where each rank was in the second attempt."""
    found = re.findall(rb"ready 2 rank (\d+) of (\d+) on (\S+)", ended.out)
    return [(int(rank), int(size), host.decode()) for rank, size, host in sorted(found)]


def agent_of(cluster, host):
    """The agent there, the parent of the rank, as this machine counts."""
    rank = next(pid for pid, words in cluster.processes(host).items() if words.startswith("sleep 1001"))
    with open(f"/proc/{rank}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def hostfile(tmp_path, text):
    (tmp_path / "hosts").write_text(text)
    return ["--hostfile", "hosts"]


def sleeping(cluster, hosts):
    """The first attempt is there."""
    for host in hosts:
        wait_until(lambda host=host: any(words.startswith("sleep 1001") for words in cluster.processes(host).values()))


@pytest.mark.parametrize("local", ["n01", "head"], ids=["remote", "with the launching host"])
def test_an_agent_is_killed(start, four, tmp_path, local):
    """Its host is still there, and gets its rank again; spares are not called."""
    hosts = hostfile(tmp_path, f"{local} slots=1\nn02 slots=1\nn03 slots=1 spare\n")
    job = start(*GROUP, *hosts, "-n", 2, "sh", "-c", SCRIPT)
    job.expect(b"ready 1", 2)
    sleeping(four, [local, "n02"])
    kill(agent_of(four, "n02"))
    ended = job.end()
    assert ended.code == 0, ended.err
    assert second(ended) == [(0, 2, local), (1, 2, "n02")]
    assert "attempt 1 of 2: the host was lost while ranks ran there on n02; all ranks are started again" in ended.err
    assert "takes the place" not in ended.err


def test_the_local_agent_is_killed_while_links_have_threads(start, four, tmp_path):
    hosts = hostfile(tmp_path, "head slots=1\nn02 slots=1\n")
    job = start(*GROUP, *hosts, "-n", 2, "sh", "-c", SCRIPT)
    job.expect(b"ready 1", 2)
    sleeping(four, ["head", "n02"])
    kill(agent_of(four, "head"))
    ended = job.end()
    assert ended.code == 0, ended.err
    assert second(ended) == [(0, 2, "head"), (1, 2, "n02")]


@pytest.mark.slow
def test_a_host_falls_silent(tmp_path):
    """With a spare, with --min-ranks, and with neither of them; all at one time, since each waits for a lease.

    The user's configuration says how long: 6 s instead of 30.
    """
    cases = {
        "spare": ("n01 slots=1\nn02 slots=1\nn03 slots=1 spare\n", [], 2),
        "dead": ("n01 slots=1\nn02 slots=1\nn04 slots=1 spare\nn03 slots=2 spare\n", [], 2),
        "fewer": ("n01 slots=2\nn02 slots=1\n", ["--min-ranks", "1"], 3),
        "none": ("n01 slots=1\nn02 slots=1\n", [], 2),
    }
    ended = {}
    with ExitStack() as stack:
        jobs = {}
        for name, (text, more, ranks) in cases.items():
            (tmp_path / name).mkdir()
            cluster = stack.enter_context(cluster_of(4, tmp_path / name / "c"))
            config = cluster.home("head") / ".ssh" / "config"
            config.write_text(f"ServerAliveInterval 2\n{config.read_text()}")
            hosts = hostfile(tmp_path / name, text)
            job = cluster.start(*GROUP, *more, *hosts, "-n", ranks, "sh", "-c", SCRIPT, cwd=tmp_path / name)
            stack.callback(job.destroy)
            job.expect(b"ready 1", ranks)
            sleeping(cluster, ["n01", "n02"])
            jobs[name] = cluster, job
        began = time.monotonic()
        for name, (cluster, _) in jobs.items():
            for host in ("n02", "n04"):
                cluster("cut" if name == "spare" else "kill", host)
        for name, (cluster, job) in jobs.items():
            ended[name] = job.end(80)
            assert time.monotonic() - began < 29, "6 s until it is noticed, 5 s for each host that is called in vain"
            for host in ("n01", "n03", "head"):
                wait_until(lambda: not cluster.processes(host), 5, lambda: f"{host}: {cluster.processes(host)}")  # noqa: B023
    assert [end.code for end in ended.values()] == [0, 0, 0, 205], [end.err for end in ended.values()]
    assert second(ended["spare"]) == second(ended["dead"]) == [(0, 2, "n01"), (1, 2, "n03")]
    assert second(ended["fewer"]) == [(0, 2, "n01"), (1, 2, "n01")]
    assert "attempt 2 of 2: n03 takes the place of n02" in ended["dead"].err
    assert "attempt 2 of 2: n02 is left out, 2 ranks instead of 3" in ended["fewer"].err
    assert "not reached again: n02: " in ended["none"].err
    assert "with --min-ranks 1 the job would go on with fewer" in ended["none"].err
