"""The question for the agent's program, among whatever a login prints."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.protocol.program_request import ASKS, ProgramRequest

MARK = b"\0" + ASKS.encode()


Answers = list[tuple[str, list[bytes]]]


def fed(stream: bytes, cuts: Sequence[int], waiting: Sequence[bytes] = ()) -> tuple[bytes, Answers]:
    """What comes through of a stream in pieces, and each answer that was asked for."""
    answers: Answers = []
    request = ProgramRequest(lambda kind, held: answers.append((kind, [bytes(frame) for frame in held])))
    for frame in waiting:
        request.send(frame)
    through = b""
    places = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    for start, end in zip(places, places[1:]):
        piece = stream[start:end]
        through += piece if answers else request.feed(piece)
    return through + request.held, answers


@given(
    st.binary(max_size=80),
    st.text("abc-1", max_size=20),
    st.binary(max_size=40),
    st.lists(st.integers(0, 200), max_size=6),
    st.lists(st.binary(max_size=9), max_size=3),
)
def test_the_question_is_found_in_any_pieces(
    noise: bytes, kind: str, rest: bytes, cuts: list[int], waiting: list[bytes]
) -> None:
    noise += MARK[: len(rest) % len(MARK)]
    stream = noise + MARK + kind.encode() + b"\n" + rest
    if stream.find(MARK) != len(noise):
        return
    assert fed(stream, cuts, waiting) == (noise + rest, [(kind, waiting)])


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_nothing_is_lost_of_what_is_no_question(stream: bytes, cuts: list[int]) -> None:
    if MARK not in stream:
        assert fed(stream, cuts) == (stream, [])


def test_a_question_without_end_is_refused() -> None:
    with pytest.raises(WireError, match="without end"):
        fed(MARK + b"x" * 200, [])


def test_a_carriage_return_of_a_terminal_is_no_part_of_it() -> None:
    assert fed(MARK + b"cpython-311-a70d0d0a\r\n", []) == (b"", [("cpython-311-a70d0d0a", [])])


def test_a_question_that_comes_after_the_wait_is_taken_and_not_answered_again() -> None:
    answers: Answers = []
    request = ProgramRequest(lambda kind, held: answers.append((kind, [bytes(frame) for frame in held])))
    request.send(b"lease")
    assert request.feed(MARK[:3]) == b""
    request.expire()
    assert answers == [("", [b"lease"])]
    assert request.feed(MARK[3:] + b"cpython-311-a70d0d0a\nrest") == b"rest"
    request.expire()
    assert len(answers) == 1


def test_who_has_left_gets_no_program() -> None:
    answers: Answers = []
    cancelled: list[bool] = []
    request = ProgramRequest(lambda kind, held: answers.append((kind, [])))
    request.cancel = lambda: cancelled.append(True)
    request.close()
    request.expire()
    assert cancelled == [True] and not answers
