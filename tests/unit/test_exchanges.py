"""What ranks of MPI programs say to each other, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.wire import exchanges
from mslaunch.wire.exchanges import Abort, Alone, Answer, Gathering, Question, Released

FEW = settings(max_examples=60, deadline=None)
WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=8)
TUPLES = st.lists(WORDS, max_size=3).map(tuple)
BLOBS = st.lists(st.binary(max_size=20), max_size=3).map(tuple)
FIELDS = st.dictionaries(WORDS.filter(bool), st.lists(WORDS, max_size=3), max_size=3)
NUMBERS = st.integers(0, 1 << 30)


@FEW
@given(st.builds(Gathering, WORDS, TUPLES, st.binary(max_size=40)))
def test_a_gathering(part: Gathering) -> None:
    assert exchanges.unpack_gathering(exchanges.pack_gathering(part)) == part


@FEW
@given(st.builds(Released, WORDS, TUPLES, BLOBS))
def test_a_release(whole: Released) -> None:
    assert exchanges.unpack_released(exchanges.pack_released(whole)) == whole


@FEW
@given(st.builds(Question, NUMBERS, WORDS, FIELDS, BLOBS))
def test_a_question(question: Question) -> None:
    assert exchanges.unpack_question(exchanges.pack_question(question)) == question


@FEW
@given(st.builds(Answer, NUMBERS, WORDS, FIELDS, BLOBS))
def test_an_answer(answer: Answer) -> None:
    assert exchanges.unpack_answer(exchanges.pack_answer(answer)) == answer


@FEW
@given(st.builds(Abort, st.integers(-5, 300), WORDS, st.booleans()))
def test_an_abort(abort: Abort) -> None:
    assert exchanges.unpack_abort(exchanges.pack_abort(abort)) == abort


@FEW
@given(st.builds(Alone, WORDS, WORDS, st.booleans(), WORDS))
def test_alone(alone: Alone) -> None:
    assert exchanges.unpack_alone(exchanges.pack_alone(alone)) == alone


def test_a_part() -> None:
    sources = {"mslaunch.agent.pmi": "import os\n", "mslaunch.agent.kvs": ""}
    assert exchanges.unpack_part(exchanges.pack_part(sources)) == sources


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_in_one_way(payload: bytes) -> None:
    for unpacker in (exchanges.unpack_gathering, exchanges.unpack_question, exchanges.unpack_answer):
        with pytest.raises(WireError):
            unpacker(payload)
