"""Hosts that failed twice within ten minutes: which failures count, and what is tried without them."""

from __future__ import annotations

from typing import Any

import pytest
from histories import exited, make_state
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Allocation, JobMap, Node, Placement
from mslaunch.launcher.job.events import AgentEnding, LinkEnded, Prepared, Started
from mslaunch.launcher.recovery.quarantine import Quarantine, failed_hosts


def allocation(here: str, spares: str = "") -> Allocation:
    def nodes(names: str, spare: bool) -> tuple[Node, ...]:
        return tuple(Node(name, 1, "hf", spare=spare) for name in names.split())

    return Allocation(nodes(here, False), True, spares=nodes(spares, True))


def ended(*history: Any) -> set[str]:
    """The hosts that have failed in an attempt of two ranks, on a and b."""
    jobmap = JobMap((Node("a", 1, "-H"), Node("b", 1, "-H")), (Placement(0, 0, 0, 0), Placement(1, 0, 1, 0)), 2)
    state = make_state(jobmap, restart="group", max_restarts=3)
    for event in (Prepared(), Started(0, 8, 0), Started(1, 9, 1), *history):
        state.on(event)
    return failed_hosts(state)


@pytest.mark.parametrize(
    ("history", "failed"),
    [
        ([exited(1, 1, None, 11)], {"b"}),  # SIGSEGV
        ([exited(1, 1, None, 9), exited(0, 0, None, 15, asked=True)], {"b"}),  # out of memory; the other was ended
        ([exited(0, 0, None, 6), exited(1, 1, None, 6)], {"a"}),  # the second is a consequence
        ([exited(1, 1, 137, None)], set()),  # a code of the program's own
        ([exited(1, 1, 1, None)], set()),
        ([exited(1, 1, None, 15)], set()),  # somebody has ended it
        ([LinkEnded(1)], {"b"}),
        ([AgentEnding(1)], {"b"}),
        ([exited(0, 0, 1, None), LinkEnded(1)], {"b"}),
        ([LinkEnded(0), LinkEnded(1)], {"a", "b"}),
        ([], set()),
    ],
)
def test_a_failure_is_that_of_a_host_or_of_the_program(history: list[Any], failed: set[str]) -> None:
    assert ended(*history) == failed


def test_two_failures_within_ten_minutes_are_too_many() -> None:
    one = Quarantine()
    one.note(["a"], 100.0)
    one.note(["b"], 200.0)
    assert one.hosts == []
    one.note(["b", "a"], 700.5)
    assert one.hosts == ["b"], "it is ten minutes and a half second since a failed"
    one.note(["a"], 1000.0)
    assert one.hosts == ["b", "a"]
    one.note(["b"], 9000.0)
    assert one.hosts == ["b", "a"]


def quarantined(*hosts: str) -> Quarantine:
    one = Quarantine()
    one.note(hosts, 0.0)
    for at, host in enumerate(hosts):
        one.note([host], float(at))
    assert one.hosts == list(hosts)
    return one


@pytest.mark.parametrize(
    ("here", "spares", "bad", "gone", "choices"),
    [
        ("a b", "c", [], [], [[]]),
        ("a b", "c", ["b"], [], [["b"], []]),
        ("a b", "", ["b"], [], [[]]),  # nothing else is there
        ("a b", "c", ["a", "b"], [], [["b"], []]),  # one spare, for the latest
        ("a b", "c d", ["a", "b"], [], [["b", "a"], []]),
        ("a b", "c", ["b"], ["a"], [[]]),  # the spare is for the host that is gone
        ("a b", "c d", ["b"], ["a"], [["b"], []]),
        ("a b", "c", ["b"], ["c"], [[]]),
        ("a b", "c", ["b"], ["b"], [[]]),
        ("a c", "d b", ["b"], ["a"], [["b"], []]),  # b waits as the last spare, d is better
        ("a c", "b", ["b"], ["a"], [["b"], []]),
        ("a c", "d b", ["b", "c"], [], [["c", "b"], ["b"], []]),
    ],
)
def test_what_is_tried(here: str, spares: str, bad: list[str], gone: list[str], choices: list[list[str]]) -> None:
    assert quarantined(*bad).avoided(allocation(here, spares), gone) == choices


NAMES = [f"n{number}" for number in range(6)]
names = st.lists(st.sampled_from(NAMES), unique=True)


@given(st.permutations(NAMES), st.integers(1, 6), names, names)
def test_all_hosts_are_tried_at_last_and_no_rank_loses_its_place(
    order: list[str], count: int, bad: list[str], gone: list[str]
) -> None:
    allocated = allocation(" ".join(order[:count]), " ".join(order[count:]))
    choices = quarantined(*bad).avoided(allocated, gone)
    assert choices[-1] == []
    for choice in choices:
        assert set(choice) <= set(bad) - set(gone)
        out = set(choice) & set(order[:count])
        spares = set(order[count:]) - {*bad, *gone}
        missing = set(order[:count]) & set(gone)
        assert not out or len(out) + len(missing) <= len(spares)
