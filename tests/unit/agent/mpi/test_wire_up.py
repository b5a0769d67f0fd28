"""When the agent sends for the search for ranks that have come up alone."""

from __future__ import annotations

import pytest

from mslaunch.agent.mpi.wire_up import MpiWireUp
from mslaunch.datamodel.node_plan import AppPlan, World

WORLD = World("7", 0, ("a",), ((0, 1),), 0, (2,), 2)


class Clock:
    """A loop whose timers go off when they are told to."""

    def __init__(self):
        self.due = []

    def after(self, seconds, callback):
        if seconds:
            self.due.append(callback)

    def reader(self, fd, callback):
        pass

    def go_off(self):
        due, self.due = self.due, []
        for callback in due:
            callback()


class Node:
    """A node on which ranks are started, and what its agent sent for."""

    def __init__(self):
        self.clock, self.pids, self.asked = Clock(), {}, []
        self.wire_up = MpiWireUp(
            self.clock, {}, lambda name, then: self.asked.append(name), lambda *frame: None, lambda: self.pids, str
        )

    def start(self, *ranks, mpi="pmi", world=WORLD):
        then = []
        self.wire_up.prepare(
            world, [(0, AppPlan(("a",), "/", mpi=mpi), ("/a", ("a",), {}, "/"))], lambda: then.append(1)
        )
        assert then
        self.asked.clear()
        self.wire_up.begin(world, dict.fromkeys(ranks, ()))
        for rank in ranks:
            self.wire_up.variables(world, 0, rank)
            self.pids[rank] = 1000 + rank


@pytest.fixture
def node():
    return Node()


def test_ranks_that_still_run_are_looked_at(node):
    node.start(0, 1)
    node.clock.go_off()
    assert node.asked == ["agent.mpi.singleton"]


def test_where_all_ranks_have_ended_nothing_is_sent_for(node):
    node.start(0, 1)
    node.pids.clear()
    node.clock.go_off()
    assert node.asked == []


def test_a_rank_that_is_started_again_is_looked_at(node):
    node.start(0, 1)
    node.pids.clear()
    node.clock.go_off()
    node.wire_up.variables(WORLD, 0, 1)
    node.pids[1] = 2001
    node.clock.go_off()
    assert node.asked == ["agent.mpi.singleton"]


def test_it_is_sent_for_once(node):
    node.start(0, 1)
    node.clock.go_off()
    node.wire_up.variables(WORLD, 0, 1)
    node.clock.go_off()
    assert node.asked == ["agent.mpi.singleton"]


@pytest.mark.parametrize(("mpi", "world"), [("none", WORLD), ("pmi", WORLD._replace(ranks=((0,),), sizes=(1,)))])
def test_ranks_that_are_offered_nothing_or_are_alone_are_not_looked_at(node, mpi, world):
    node.start(0, mpi=mpi, world=world)
    node.clock.go_off()
    assert node.asked == []
