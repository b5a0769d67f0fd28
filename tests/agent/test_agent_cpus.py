"""What an agent says of its cpus, and how its ranks get them."""

from __future__ import annotations

import errno
import os

from agents import plan

from mslaunch.agent.cpus import bound, count_cores
from mslaunch.agent.topology import read_topology
from mslaunch.model import RankPlan
from mslaunch.wire import frames, messages

OURS = os.sched_getaffinity(0)
LAST = max(OURS)
NO_CPU = 1000  # that a machine of ours does not have
ALLOWED = ("grep", "Cpus_allowed_list", "/proc/self/status")


def test_the_numbers_of_cpus_and_cores(boot):
    hello = boot().begin()
    assert (hello.cpus, hello.cores) == (len(OURS), count_cores(OURS))


def test_a_question_that_stands_right_behind_the_program(boot):
    """Frames may follow the payload at once; the answer comes behind HELLO."""
    agent = boot()
    agent.raw(agent.payload + frames.encode(frames.DESCRIBE))
    found = messages.unpack_topology(agent.expect(frames.TOPOLOGY).payload)
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


def test_a_rank_that_is_started_again_is_bound_again(agent):
    """And those who are started meanwhile are not."""
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


def test_a_cpu_that_is_not_there(agent):
    """It is that rank's error, in words; the others run."""
    ranks = (RankPlan(0, 0, (), (NO_CPU,)), RankPlan(1, 0, (), (LAST,)), RankPlan(2, 0, ()))
    agent.launch(plan(*ALLOWED)._replace(ranks=ranks))
    ended = agent.exit(0)
    assert (ended.code, ended.signal) == (1, None)
    assert f"cpu {NO_CPU}" in ended.error and "--bind-to none" in ended.todo
    assert agent.exit(1).code == 0 and agent.exit(2).code == 0


def test_cpus_that_are_taken_away_while_a_rank_is_started(monkeypatch):
    """Its cgroup may have shrunk: the rank runs, and so must we, on whatever there is."""
    asked = []

    def shrinking(pid, cpus):
        asked.append(set(cpus))
        if len(asked) == 2:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", shrinking)
    with bound((LAST,)):
        assert asked == [{LAST}]
    assert asked[1] == OURS and asked[2] >= OURS
