"""The closing report, as the user reads it."""

from __future__ import annotations

import pytest

from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.outcome import Attempt, Failure, Outcome, RankStatus
from mslaunch.errors import LinkError
from mslaunch.launcher.messages.closing_report import outcome_text, unreached_text
from mslaunch.launcher.rank_names import ranks_text

FIRST_SERVER = SERVICE - 1


def ranks(*reasons: str, code: int | None = 0) -> tuple[RankStatus, ...]:
    return tuple(RankStatus(rank, "n0", 1, code, None, reason) for rank, reason in enumerate(reasons))


def test_a_job_that_ended_well_has_no_report() -> None:
    assert outcome_text(Outcome(0, ranks("", ""), None, 1.0)) == ""


def test_a_failure_and_its_victims() -> None:
    failure = Failure("rank 1 ended with exit code 3", "n0", 1, 3, ("Traceback:", "ValueError: x"))
    outcome = Outcome(3, ranks("ended", "", "ended", "ended", "lost", "not started"), failure, 12.34)
    assert outcome_text(outcome, "out/1/rank.1/stderr") == (
        "mslaunch: rank 1 ended with exit code 3 on n0, after 12.3 s\n"
        "  | Traceback:\n"
        "  | ValueError: x\n"
        "  log: out/1/rank.1/stderr\n"
        "  ended by mslaunch: ranks 0, 2-3\n"
        "  lost with their host: rank 4\n"
        "  not started: rank 5\n"
    )


def test_a_failure_of_no_rank() -> None:
    failure = Failure("the host was lost while ranks ran there", "n0", None, 205, ("its agent ended, or was killed",))
    assert outcome_text(Outcome(205, ranks("lost"), failure, 0.04)) == (
        "mslaunch: the host was lost while ranks ran there on n0, after 0.0 s\n"
        "  its agent ended, or was killed\n"
        "  lost with their host: rank 0\n"
    )


def test_others_that_failed_too_are_not_said_to_have_been_first() -> None:
    """Without abort the job goes on: rank 1 failed after the cause."""
    failure = Failure("rank 0 ended with exit code 3", "n0", 0, 3)
    text = outcome_text(Outcome(3, ranks("", "", code=3), failure, 1.0))
    assert "failed as well" in text and "rank 1" in text
    assert "before that" not in text


def test_with_recovery_the_reader_learns_why_the_exit_code_is_0() -> None:
    failure = Failure("rank 0 ended with exit code 3", "n0", 0, 3)
    one, well = RankStatus(0, "n0", 1, 3), RankStatus(2, "n0", 1, 0)
    assert outcome_text(Outcome(0, (one, RankStatus(1, "n0", 1, None, 9), well), failure, 1.0)) == (
        "mslaunch: rank 0 ended with exit code 3 on n0, after 1.0 s\n"
        "  failed as well: rank 1\n"
        "  with recovery the job went on without the failed ranks; others succeeded, so the exit code is 0\n"
    )


def test_the_scheduler_is_explained() -> None:
    text = outcome_text(Outcome(1, ranks("ended"), Failure("the MindSpore scheduler died", "n0", SERVICE), 1.0))
    assert (
        text.splitlines()[-1] == "  (the scheduler is the process where MindSpore's ranks register; it is not a rank)"
    )
    text = outcome_text(Outcome(1, ranks("ended"), Failure("parameter server 0 died", "n0", SERVICE - 1), 1.0))
    assert text.splitlines()[-1] == "  (a parameter server stores parameters for MindSpore's ranks; it is not a rank)"


ONCE = Attempt(1, Failure("rank 1 was ended by SIGKILL (killed)", "n1", 1, 137, ("its", "words")), 3.21)
TWICE = Attempt(
    2, Failure("the host was lost while ranks ran there", "n2", None, 205), 75.0, "n4 takes the place of n2"
)


def test_restarts_of_a_job_that_ended_well_are_reported() -> None:
    outcome = Outcome(0, ranks("", ""), None, 100.0, (ONCE, TWICE), ("the MindSpore scheduler on n0, which died",))
    assert outcome_text(outcome) == (
        "mslaunch: all ranks succeeded, in attempt 3, after 1 min 40 s\n"
        "  attempt 1: rank 1 was ended by SIGKILL (killed) on n1, after 3.2 s\n"
        "  attempt 2: the host was lost while ranks ran there on n2, after 1 min 15 s; then n4 takes the place of n2\n"
        "  started again: the MindSpore scheduler on n0, which died\n"
    )


def test_restarts_of_a_failed_job_follow_the_cause() -> None:
    outcome = Outcome(9, ranks("", "ended"), Failure("rank 0 ended with exit code 9", "n0", 0, 9), 9.0, (ONCE,))
    assert outcome_text(outcome, "log") == (
        "mslaunch: rank 0 ended with exit code 9 on n0, in attempt 2, after 9.0 s\n"
        "  log: log\n"
        "  ended by mslaunch: rank 1\n"
        "  attempt 1: rank 1 was ended by SIGKILL (killed) on n1, after 3.2 s\n"
    )


def test_of_many_restarts_the_first_are_reported() -> None:
    outcome = Outcome(0, ranks(""), None, 1.0, (ONCE,) * 9, tuple(f"rank {rank}" for rank in range(10)))
    lines = outcome_text(outcome).splitlines()
    assert len(lines) == 19
    assert lines[9] == "  and 1 more attempt"
    assert lines[-2:] == ["  started again: rank 7", "  started again: 2 others"]


def test_ranks_that_begin_with_another_number() -> None:
    """With one msrun on each host, the ranks before them run elsewhere."""
    statuses = tuple(rank._replace(rank=rank.rank + 4) for rank in ranks("ended", "", "ended"))
    text = outcome_text(Outcome(3, statuses, Failure("rank 5 ended with exit code 3", "n0", 5, 3), 1.0))
    assert text.splitlines()[1:] == ["  ended by mslaunch: ranks 4, 6"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (3600, "1 h 00 min"), (7385, "2 h 03 min")],
)
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert outcome_text(Outcome(1, (), Failure("x"), seconds)) == f"mslaunch: x, after {text}\n"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "rank 3"), ([0, 1, 2, 5], "ranks 0-2, 5"), ([7, 0], "ranks 0, 7"), ([1, 2], "ranks 1-2")],
)
def test_lists_of_ranks_are_folded(numbers: list[int], text: str) -> None:
    assert ranks_text(numbers) == text


def test_one_unreachable_host_is_reported() -> None:
    error = LinkError("no route to host", "n7", "is it switched on?")
    assert unreached_text([error], 1) == "mslaunch: n7: no route to host\n  is it switched on?\n  nothing was started\n"
    assert unreached_text([error], 2).endswith("nothing was started on the other hosts\n")


def test_hosts_with_the_same_trouble_are_reported_once() -> None:
    errors = [LinkError("no route", f"n{number}", f"ping n{number}") for number in (1, 2, 3)]
    errors.append(LinkError("it has no python3", "n9", "install it"))
    assert unreached_text(errors, 64) == (
        "mslaunch: 4 of 64 hosts could not be used; nothing was started\n"
        "  n[1-3]: no route\n"
        "    ping n1\n"
        "    (the same for the others)\n"
        "  n9: it has no python3\n"
        "    install it\n"
    )


@pytest.mark.parametrize("names", [("a", "b"), ("", "")])
def test_a_host_with_a_short_name_does_not_garble_the_advice(names: tuple[str, str]) -> None:
    errors = [LinkError("no route", name, "install a cable there") for name in names]
    assert unreached_text(errors, 2).splitlines()[2] == "    install a cable there"
