"""The exception that ended a Python program, and the quoted last output of a failed rank."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.outcome import Failure
from mslaunch.launcher.job_failure import NOT_STARTED, JobFailure
from mslaunch.launcher.messages.closing_report import exception, with_last_words
from mslaunch.launcher.messages.failure_text import failure_of
from mslaunch.launcher.rank_names import RankNames

HEAD = "Traceback (most recent call last):"
FRAMES = [HEAD, '  File "net.py", line 3, in <module>', "    f()", "    ~^^"]
CHAINED = [*FRAMES, "KeyError: 'a'", "", "During handling of the above exception, another exception occurred:", ""]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([*FRAMES, "ValueError: boom"], "ValueError: boom"),
        (["step 1", *FRAMES, "ValueError: boom", "more of it", "- and a list"], "ValueError: boom"),
        ([*FRAMES, "AssertionError"], "AssertionError"),
        ([*FRAMES, "mindspore.common.MyError: it  broke  "], "mindspore.common.MyError: it  broke"),
        ([*FRAMES, "RuntimeError: "], "RuntimeError:"),
        ([*CHAINED, *FRAMES, "TypeError: no"], "TypeError: no"),
        ([*FRAMES, "  [Previous line repeated 990 more times]", "RecursionError: deep"], "RecursionError: deep"),
        ([*FRAMES, "ValueError: " + "x" * 200], "ValueError: " + "x" * 107 + "…"),
        ([*FRAMES, "ValueError: " + "x" * 108], "ValueError: " + "x" * 108),
        ([], ""),
        (["ValueError: boom"], ""),
        (FRAMES, ""),
        ([*FRAMES, "", "   "], ""),
        ([*FRAMES, "done"], ""),
        ([*FRAMES, "rank 1: done"], ""),
        ([*FRAMES, "error: it went wrong"], ""),
        ([*FRAMES, "Note:this"], ""),
        ([*FRAMES, "[WARNING] x: y"], ""),
        ([*FRAMES, ": text"], ""),
        ([*FRAMES, "a..B: text"], ""),
        ([f"  {HEAD}", "ValueError: boom"], ""),
        ([*FRAMES, "ValueError: boom", HEAD], ""),
    ],
)
def test_the_last_exception_is_found(lines: list[str], said: str) -> None:
    assert exception(lines) == said


@given(st.lists(st.one_of(st.just(HEAD), st.text(max_size=200)), max_size=6))
def test_any_text_becomes_one_short_line(lines: list[str]) -> None:
    said = exception(lines)
    assert len(said) <= 120 and (not said or HEAD in lines)


def test_a_program_that_cannot_be_started_names_every_host() -> None:
    errors = {"no file x": [0], "x cannot be executed": [1, 2, 3]}
    failure = failure_of(JobFailure(NOT_STARTED, {"errors": errors, "todo": "look"}), RankNames(4), list("abcd"))
    assert (failure.what, failure.host) == ("no file x", "a")
    assert failure.detail == ("look", "b,c,d: x cannot be executed")


class Words:
    """The last output of ranks, as the report gets it."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def __call__(self, rank: int, lines: int) -> Sequence[str]:
        return self.lines[-lines:]


BOOM = Words(*FRAMES, "ValueError: boom")


@pytest.mark.parametrize(
    ("what", "code", "headline"),
    [
        ("rank 1 ended with exit code 1", 1, "rank 1 ended with exit code 1 (ValueError: boom)"),
        ("rank 1, started again, ended with exit code 1", 1,
         "rank 1, started again, ended with exit code 1 (ValueError: boom)"),
        ("rank 1 ended with exit code 3", 3, "rank 1 ended with exit code 3"),
        ("rank 1 was ended by SIGTERM (terminated)", 143, "rank 1 was ended by SIGTERM (terminated)"),
        ("rank 1 called MPI_Abort with code 1", 1, "rank 1 called MPI_Abort with code 1"),
    ],
)  # fmt: skip
def test_a_headline_names_the_exception(what: str, code: int, headline: str) -> None:
    failure = with_last_words(Failure(what, "n0", 1, code), BOOM)
    assert failure == Failure(headline, "n0", 1, code, BOOM.lines)


def test_a_long_traceback_is_searched_and_its_end_is_quoted() -> None:
    frames = [f'  File "x.py", line {number}' for number in range(60)]
    failure = with_last_words(Failure("rank 0 ended with exit code 1", "n0", 0), Words(HEAD, *frames, "OSError: x"))
    assert failure.what.endswith(" (OSError: x)")
    assert failure.detail == (*frames[-19:], "OSError: x")


def test_quoted_lines_are_escaped() -> None:
    failure = with_last_words(Failure("rank 1 ended with exit code 3", "n0", 1, 3), Words("\x1b[31mred\tand \u20ac"))
    assert failure.detail == ("?[31mred\tand \u20ac",)


def test_nothing_is_said_twice() -> None:
    failure = Failure("rank 0 called MPI_Abort with code 7", "n0", 0, 7, ("in step 3", "in vain"))
    assert with_last_words(failure, Words("abort: in vain!")).detail == ("in step 3", "abort: in vain!")


def test_a_host_has_no_last_output() -> None:
    failure = Failure("the host was lost while ranks ran there", "n0", None, 205, ("it is gone",))
    assert with_last_words(failure, BOOM) == failure


def test_a_service_is_quoted_too() -> None:
    failure = Failure("the MindSpore scheduler ended with exit code 1 before it listened", "n0", SERVICE)
    assert with_last_words(failure, Words("port occupied")).detail == ("port occupied",)


def test_errors_that_differ_by_the_rank_are_one() -> None:
    errors = {f"no socket for rank {rank}: too many open files": (rank % 3,) for rank in (9, *range(3, 8))}
    failure = failure_of(JobFailure(NOT_STARTED, {"errors": errors, "todo": ""}), RankNames(10), ["a1", "a2", "a3"])
    assert (failure.what, failure.host) == ("no socket for ranks 3-7, 9: too many open files", "a[1-3]")
    assert failure.detail == ()


def test_many_different_errors_are_counted() -> None:
    errors = {f"error {'x' * number}": (0,) for number in range(30)}
    failure = failure_of(JobFailure(NOT_STARTED, {"errors": errors, "todo": "look"}), RankNames(1), ["a"])
    assert len(failure.detail) == 10 and failure.detail[-1] == "and 21 other errors"
