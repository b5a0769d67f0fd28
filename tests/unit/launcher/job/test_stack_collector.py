"""What agents send of stacks: one answer for each question, of the round that runs, and clean text."""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.launcher.job.events import ASKED, ON_FAILURE, ON_HANG, ON_TIMEOUT, Hung, ShowStacks, StacksShown
from mslaunch.launcher.job.rank_table import RankTable
from mslaunch.launcher.job.stack_collector import StackCollector
from mslaunch.protocol.control import StackTrace

TWO = JobMap((Node("n0", 1, "-H"), Node("n1", 1, "-H")), (Placement(0, 0, 0, 0), Placement(1, 0, 1, 0)), 2)


def collector(said: list[str]) -> StackCollector:
    return StackCollector(RankTable(TWO, 2), said.append)


def trace(function: str, pid: int = 9) -> StackTrace:
    return StackTrace(pid, "a.out", "gdb", f"#0  {function} ()")


def test_a_round_is_told_once_and_then_forgotten() -> None:
    said: list[str] = []
    stacks = collector(said)
    for node in (0, 1):
        stacks.begin(node)
        assert stacks.take(node)
        stacks.came(node, node, trace("f"))
        assert stacks.take(node) and stacks.over(node)
    shown = stacks.show(ShowStacks((ON_HANG,), (), Hung(7)))
    assert shown == StacksShown((ON_HANG,), "all 2 ranks in f", ())
    assert said[0].startswith("mslaunch: no rank has printed anything for 7 seconds: all 2 ranks in f\n")
    assert stacks.show(ShowStacks((ON_TIMEOUT,))).text == ""
    assert said[1] == "mslaunch: before the ranks are ended\n"


def test_what_comes_late_does_not_count_for_the_next_round() -> None:
    stacks = collector([])
    stacks.begin(0)
    stacks.came(0, 0, trace("old"))
    assert stacks.show(ShowStacks((ON_FAILURE,), (1,))).text == "rank 0 in old"
    stacks.begin(0)
    stacks.came(0, 0, trace("late"))
    assert not stacks.over(0), "the end of the round before"
    stacks.came(0, 0, trace("new", pid=10))
    assert stacks.over(0)
    assert stacks.show(ShowStacks((ON_FAILURE,))).text == "rank 0 in new"


def test_what_was_not_asked_for_may_not_come() -> None:
    stacks = collector([])
    assert not stacks.take(0)
    stacks.begin(0)
    count = 0
    while stacks.take(0):
        count += 1
    assert count == 33 and not stacks.take(1)


def test_who_asks_gets_the_text_and_others_do_not() -> None:
    said: list[str] = []
    stacks = collector(said)
    answers: list[str] = []
    stacks.asked += [answers.append, answers.append]
    stacks.begin(1)
    stacks.came(1, 1, trace("\x1b[31mred"))
    stacks.over(1)
    stacks.show(ShowStacks((ASKED, ASKED), (0,)))
    assert said == [] and len(answers) == 2
    assert answers[0].startswith("mslaunch: rank 1 in ?[31mred\n")
    assert answers[0].endswith("  no answer about the ranks on n0\n")
    stacks.asked.append(answers.append)
    stacks.close()
    assert answers[2] == "mslaunch: the job has ended meanwhile\n"
