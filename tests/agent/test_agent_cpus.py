"""Cpus: the agent's report, and the binding of its ranks."""

from __future__ import annotations

import errno
import os

import pytest
from agents import plan

from mslaunch.agent.ranks import numa_memory
from mslaunch.agent.ranks.cpu_affinity import bound
from mslaunch.datamodel.node_plan import RankPlan
from mslaunch.host.read_topology import read_topology
from mslaunch.host.usable_cpus import count_cores
from mslaunch.protocol import control, frames

OURS = os.sched_getaffinity(0)
LAST = max(OURS)
NO_CPU = 1000  # that a machine of ours does not have
ALLOWED = ("grep", "Cpus_allowed_list", "/proc/self/status")


def test_the_numbers_of_cpus_and_cores(boot):
    hello = boot().begin()
    assert (hello.cpus, hello.cores) == (len(OURS), count_cores(OURS))


def test_a_request_may_follow_the_program_at_once(boot):
    """Frames may follow the program at once; the answer comes behind HELLO."""
    agent = boot()
    agent.raw(agent.program() + frames.encode(frames.DESCRIBE))
    found = control.unpack_topology(agent.expect(frames.TOPOLOGY).payload)
    assert found == read_topology(OURS)
    assert [frame.kind for frame in agent.frames] == [frames.HELLO]


def test_a_rank_is_bound_to_the_cpus_of_its_plan(agent):
    """By the kernel's numbers; the next one, which has none, is not bound."""
    ranks = (RankPlan(0, 0, (), (LAST,)), RankPlan(1, 0, ()))
    agent.launch(plan(*ALLOWED)._replace(ranks=ranks))
    assert agent.output(frames.STDOUT, 0).split()[-1] == str(LAST).encode()
    assert agent.exit(1).code == 0
    many = agent.output(frames.STDOUT, 1).split()[-1]
    assert (many == str(LAST).encode()) == (len(OURS) == 1)


def test_a_restarted_rank_is_bound_again(agent):
    """Ranks that are started meanwhile are not."""
    script = "grep Cpus_allowed_list /proc/self/status; exit 3"
    ranks = (RankPlan(0, 0, (), (LAST,)), RankPlan(1, 0, ()))
    agent.launch(plan("sh", "-c", script, pty="no")._replace(ranks=ranks))
    for life in range(2):
        allowed = [agent.output(frames.STDOUT, rank).split()[-1].decode() for rank in range(2)]
        assert allowed[0] == str(LAST)
        assert (allowed[1] == str(LAST)) == (len(OURS) == 1)
        for rank in (0, 1):
            agent.output(frames.STDERR, rank)
            agent.exit(rank)
            if not life:
                agent.send(frames.RESTART, rank, b"1")


def test_a_missing_cpu_is_an_error_of_its_rank(agent):
    """The error is reported in words; the other ranks run."""
    ranks = (RankPlan(0, 0, (), (NO_CPU,)), RankPlan(1, 0, (), (LAST,)), RankPlan(2, 0, ()))
    agent.launch(plan(*ALLOWED)._replace(ranks=ranks))
    ended = agent.exit(0)
    assert (ended.code, ended.signal) == (1, None)
    assert f"cpu {NO_CPU}" in ended.error and "--bind-to none" in ended.todo
    assert agent.exit(1).code == 0 and agent.exit(2).code == 0


def test_cpus_that_are_taken_away_while_a_rank_is_started(monkeypatch):
    """Its cgroup may have shrunk: the rank runs on the cpus that are left, and so must the agent."""
    asked = []

    def shrinking(pid, cpus):
        asked.append(set(cpus))
        if len(asked) == 2:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", shrinking)
    with bound((LAST,)):
        assert asked == [{LAST}]
    assert asked[1] == OURS and asked[2] >= OURS


# --- memory


def policies(pid: int | str = "self") -> set[str]:
    """As numa_maps(5) has them: default, bind:0, …"""
    with open(f"/proc/{pid}/numa_maps") as file:
        return {line.split()[1] for line in file}


@pytest.fixture
def numa():
    """Here memory can be bound to node 0."""
    try:
        numa_memory.bind((0,))()
    except OSError as error:
        pytest.skip(f"NOT TESTED, memory cannot be bound here: {error.strerror}")


def test_memory_is_bound_for_as_long_as_it_takes(numa):
    before = policies()
    with bound((), (0,)) as binding:
        assert "bind:0" in policies()
    assert policies() == before and not binding.refused


def test_memory_of_a_rank(agent, numa):
    """Its plan names the nodes; the next one, of which nothing was said, takes any."""
    script = "grep -o 'bind:0' /proc/self/numa_maps | sort -u; echo end"
    ranks = (RankPlan(0, 0, (), (LAST,), (), (0,)), RankPlan(1, 0, ()))
    agent.launch(plan("sh", "-c", script, pty="no")._replace(ranks=ranks))
    assert agent.output(frames.STDOUT, 0) == b"bind:0\nend\n"
    assert agent.output(frames.STDOUT, 1) == b"end\n"


@pytest.mark.parametrize("merge", [False, True])
def test_missing_memory_is_reported_once(agent, merge):
    """The ranks run all the same."""
    ranks = tuple(RankPlan(rank, 0, (), (), (), (1023,)) for rank in range(3))
    agent.launch(plan("echo", "here", pty="no", merge=merge)._replace(ranks=ranks))
    said = b"".join(agent.output(frames.STDOUT if merge else frames.STDERR, rank) for rank in range(3))
    words = b"mslaunch: this host bound no memory to NUMA node 1023: "
    assert said.count(words) == 1 and said.count(b"; ranks run without that\n") == 1
    assert all(agent.exit(rank).code == 0 for rank in range(3))


def test_an_unknown_machine(monkeypatch):
    monkeypatch.setattr(numa_memory, "_CALLS", {})
    with bound((), (0,)) as binding:
        pass
    assert binding.refused.startswith("this host bound no memory to NUMA node 0: ")


@pytest.mark.parametrize("node", [-1, 1024])
def test_a_node_beyond_all(node):
    with bound((), (node,)) as binding:
        pass
    assert f"node {node}: " in binding.refused
