"""What an agent says of its cpus, and how its ranks get them."""

from __future__ import annotations

import os

from agents import plan

from mslaunch.agent.cpus import count_cores
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


def test_a_cpu_that_is_not_there(agent):
    """It is that rank's error, in words; the others run."""
    ranks = (RankPlan(0, 0, (), (NO_CPU,)), RankPlan(1, 0, (), (LAST,)), RankPlan(2, 0, ()))
    agent.launch(plan(*ALLOWED)._replace(ranks=ranks))
    ended = agent.exit(0)
    assert (ended.code, ended.signal) == (1, None)
    assert f"cpu {NO_CPU}" in ended.error and "--bind-to none" in ended.todo
    assert agent.exit(1).code == 0 and agent.exit(2).code == 0
