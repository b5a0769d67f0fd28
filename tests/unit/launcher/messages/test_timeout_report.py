"""The report of --timeout: a short table, and a block for each process."""

from __future__ import annotations

from typing import Any

from histories import exited, make_state

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.launcher.job.events import LinkEnded, Prepared, Started, StreamEnded
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.messages.timeout_report import state_text


def job(ranks: int, hosts: int, *events: Any, **how: Any) -> JobState:
    """`ranks` ranks in equal parts on hosts n1, n2, …, all started; then the `events` happened."""
    rows = tuple(Placement(rank, 0, rank * hosts // ranks, rank) for rank in range(ranks))
    state = make_state(JobMap(tuple(Node(f"n{host + 1}", 8, "-H") for host in range(hosts)), rows, ranks), **how)
    for event in (Prepared(), *(Started(rank, 100 + rank) for rank in range(ranks)), *events):
        state.on(event)
    return state


def report(state: JobState, seconds: float) -> str:
    return state_text(state.table.rank_states(), state.table.names, seconds)


def over(rank: int, code: int | None = 0, signum: int | None = None) -> list[Any]:
    return [exited(rank, 0, code, signum), StreamEnded(rank), StreamEnded(rank)]


def test_each_rank_has_a_line() -> None:
    events = [*over(0), *over(1, None, 9), exited(2, 0, 3, None), *over(4, 3), *over(5, 3), Started(5, 205)]
    text = report(job(6, 2, *events, max_restarts=1), 90.5)
    # ranks 1, 2 and 4 wait for their restart; 5 has been restarted
    assert text == (
        "mslaunch: the ranks after 90.5 s:\n"
        "  rank  node  pid  state\n"
        "  0     n1    100  ended with exit code 0\n"
        "  1     n1    -    being started again\n"
        "  2     n1    -    being started again\n"
        "  3     n2    103  running\n"
        "  4     n2    -    being started again\n"
        "  5     n2    205  running, started again 1 time\n"
    )


def test_the_table_says_how_ranks_ended() -> None:
    text = report(job(3, 1, *over(0, None, 9), exited(1, 0, 3, None), StreamEnded(1), recovery=True), 1)
    assert [line.split(None, 3)[3] for line in text.splitlines()[2:]] == [
        "was ended by SIGKILL (killed)",
        "ended with exit code 3, but its output is still open",
        "running",
    ]


def test_ranks_that_are_lost_or_were_never_started() -> None:
    state = make_state(
        JobMap((Node("n1", 1, "-H"), Node("n2", 1, "-H")), (Placement(0, 0, 0, 0), Placement(1, 0, 1, 0)), 2)
    )
    for event in (Prepared(), Started(0, 7), LinkEnded(0)):
        state.on(event)
    rows = report(state, 1).splitlines()[2:]
    assert [row.split(None, 3)[3] for row in rows] == ["lost with its host", "not started"]


def test_many_ranks_are_folded_and_the_odd_ones_are_not() -> None:
    text = report(job(4000, 50, *over(7, 0), *over(1234, 0)), 60)
    assert text == (
        "mslaunch: the ranks after 60 s:\n"
        "  rank                    node     pid         state\n"
        "  0-6, 8-1233, 1235-3999  n[1-50]  3998 ranks  running\n"
        "  7                       n1       107         ended with exit code 0\n"
        "  1234                    n16      1334        ended with exit code 0\n"
    )


def test_lines_of_the_table_are_bounded() -> None:
    text = report(job(4000, 2, *(event for rank in range(0, 4000, 2) for event in over(rank))), 60)
    assert len(text.splitlines()) == 4
    assert max(map(len, text.splitlines())) < 140
