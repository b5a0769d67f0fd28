"""The table of ranks answers what is asked for each of them without looking at all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import NodeId
from mslaunch.launcher.job import events
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job.rank_table import RankState, RankTable

NODES, EACH = 50, 4
RANKS = NODES * EACH


class Looked(list):
    """A list that counts how often one of its things is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Looked.looks += 1
        return super().__getitem__(at)

    def __iter__(self) -> Any:
        for thing in super().__iter__():
            Looked.looks += 1
            yield thing


def job() -> JobMap:
    nodes = tuple(Node(f"n{node}", EACH, "-H") for node in range(NODES))
    return JobMap(nodes, tuple(Placement(at, 0, NodeId(at // EACH), at % EACH) for at in range(RANKS)), RANKS)


def counted(table: RankTable) -> RankTable:
    table._all = Looked(table._all)
    for world in {rank.world for rank in table.ranks.values()}:
        world.ranks = Looked(world.ranks)
    Looked.looks = 0
    return table


def test_whether_all_have_ended_is_answered_in_one_pass_for_all_ends() -> None:
    table = counted(RankTable(job(), 2))
    for rank in reversed(table.ranks.values()):  # the first, which is waited for, ends last
        assert not table.ranks_ended and not table.ranks_over
        rank.end()
        table.stream_ended(rank.rank)
        table.stream_ended(rank.rank)
    assert table.ranks_ended and table.ranks_over
    assert Looked.looks < 10 * RANKS


def test_a_rank_without_mpi_is_not_compared_with_all_others() -> None:
    table = counted(RankTable(job(), 2))
    assert [rank.waited_for_by() for rank in table.ranks.values()] == [""] * RANKS
    ranks = list(table.ranks.values())
    ranks[7].use_mpi(True)
    assert ranks[8].waited_for_by() == "mpi"
    ranks[7].reset()
    assert ranks[8].waited_for_by() == ""
    assert Looked.looks == 0


def test_the_first_rank_that_ended_without_mpi_is_found_among_those_alone() -> None:
    table = counted(RankTable(job(), 2))
    ranks, world = list(table.ranks.values()), table.ranks[0].world
    ranks[1].use_mpi(True)
    ranks[1].end()
    assert world.missing_rank() is None
    ranks[5].end()
    ranks[3].end()
    assert world.missing_rank() is ranks[3]
    assert Looked.looks == 0


def test_a_host_that_is_lost_concerns_its_own_ranks() -> None:
    table = RankTable(job(), 2)
    assert [rank.rank for rank in table.on(3)] == [12, 13, 14, 15]
    assert table.on(NODES) == ()
    node = table.add_node("late")
    first = table.add_world([0, node])
    assert [rank.rank for rank in table.on(node)] == [first + 1]
    assert len(table.on(0)) == EACH + 1


def test_the_loss_of_every_host_looks_at_each_rank_a_few_times(monkeypatch: Any) -> None:
    state = JobState(job())
    state.on(events.Began(1.0))
    state.on(events.Prepared((), 1))
    for rank in range(RANKS):
        state.on(events.Started(rank, 1000 + rank, NodeId(rank // EACH)))
    looks: Counter[str] = Counter()
    over = RankState.over.fget
    assert over

    def look(rank: RankState) -> bool:
        looks["over"] += 1
        return bool(over(rank))

    monkeypatch.setattr(RankState, "over", property(look))
    for node in range(NODES):
        state.on(events.LinkEnded(NodeId(node), None))
    assert state.finished
    assert looks["over"] < 4 * RANKS
