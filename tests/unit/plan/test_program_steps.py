"""--ready: which ranks start at which step, and where that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import NodePlan, RankId, RankPlan, ServicePlan
from mslaunch.datamodel.request import AppContext, Request, ServicePolicy, Share
from mslaunch.errors import UsageError
from mslaunch.plan.program_steps import MEETING_PORT, ProgramStep, check_order, part_of, steps_of

APPS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 6379, MEETING_PORT])), min_size=1, max_size=6)


def asked(*ports: int, **more: object) -> Request:
    """So many programs with these ports."""
    return Request(tuple(AppContext((f"p{at}",), ready=port) for at, port in enumerate(ports)))._replace(**more)  # type: ignore[arg-type]


def job(counts: list[int]) -> JobMap:
    """So many ranks of each program, on two nodes in turn."""
    apps = [app for app, count in enumerate(counts) for _ in range(count)]
    rows = tuple(Placement(rank, app, rank % 2, rank // 2) for rank, app in enumerate(apps))
    return JobMap((Node("n0", 9, "-H"), Node("n1", 9, "-H")), rows, 18)


def test_ranks_wait_for_the_last_port_before_them() -> None:
    steps = steps_of(asked(0, 6379, 0, MEETING_PORT, 0), job([1, 2, 1, 1, 1]))
    expected = (({0, 1, 2}, 1, 6379), ({3, 4}, 4, MEETING_PORT), ({5}, -1, 0))
    assert steps == tuple(ProgramStep(frozenset(ranks), *more) for ranks, *more in expected)


@given(APPS)
def test_every_rank_starts_once(apps: list[tuple[int, int]]) -> None:
    counts, ports = [count for count, _ in apps], [port for _, port in apps[:-1]]
    jobmap = job(counts)
    steps = steps_of(asked(*ports, 0), jobmap)
    ranks = [rank for step in steps for rank in sorted(step.ranks)]
    assert ranks == list(range(sum(counts))) and len(steps) == 1 + sum(map(bool, ports))
    assert all(step.head in step.ranks and step.port for step in steps[:-1])
    for node in range(2):
        here = [placement for placement in jobmap.placements if placement.node == node]
        rows = tuple(RankPlan(RankId(placement.rank), placement.app, ()) for placement in here)
        plan = NodePlan(rows, (), (), stdin=tuple(row.rank for row in rows), services=(ServicePlan(1, ()),))
        parts = [part_of(plan, steps, number) for number in range(len(steps))]
        assert parts[0] and parts[0].services == plan.services
        assert tuple(row for part in parts if part for row in part.ranks) == rows
        assert all(part.stdin == tuple(row.rank for row in part.ranks) for part in parts if part)
        assert not any(part.services or not part.ranks for part in parts[1:] if part)


def test_a_host_hears_nothing_before_its_first_rank() -> None:
    steps = (ProgramStep(frozenset({0}), 0, 6379), ProgramStep(frozenset({1})))
    late, none = NodePlan((RankPlan(RankId(1), 0, ()),), (), ()), NodePlan((), (), ())
    assert [part_of(late, steps, number) for number in range(2)] == [None, late]
    assert [part_of(none, steps, number) for number in range(2)] == [none, None], "a host without ranks"


SHARE = ServicePolicy(share=Share(4, 0, "10.0.0.1", 8118, True))


@pytest.mark.parametrize(
    ("request_", "where", "what"),
    [
        (asked(6379), "--ready 6379", "no program follows"),
        (asked(0, MEETING_PORT), "--ready {master_port}", "no program follows"),
        (asked(6379, 0, cluster=SHARE), "--ready 6379", "each of several launchers"),
    ],
)
def test_where_nothing_can_wait(request_: Request, where: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as found:
        check_order(request_)
    assert found.value.where == where and found.value.todo
