"""Payloads of MPI frames survive a round trip."""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.protocol import mpi
from mslaunch.protocol.control import pack_record, unpack_record
from mslaunch.protocol.mpi import Abort, Alone, Answer, Gathering, Question, Released
from mslaunch.transport.bootstrap.agent_program import pack_part

FEW = settings(max_examples=60, deadline=None)
WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=8)
TUPLES = st.lists(WORDS, max_size=3).map(tuple)
BLOBS = st.lists(st.binary(max_size=20), max_size=3).map(tuple)
FIELDS = st.dictionaries(WORDS.filter(lambda name: name[:1] not in ("", ".")), st.lists(WORDS, max_size=3), max_size=3)
NUMBERS = st.integers(0, 1 << 30)


@FEW
@given(st.builds(Gathering, WORDS, TUPLES, BLOBS))
def test_a_gathering(part: Gathering) -> None:
    assert mpi.unpack_with_blobs(Gathering, mpi.pack_with_blobs(part)) == part


@FEW
@given(st.builds(Released, WORDS, TUPLES, BLOBS))
def test_a_release(whole: Released) -> None:
    assert mpi.unpack_with_blobs(Released, mpi.pack_with_blobs(whole)) == whole


@pytest.mark.parametrize("size", [4000, 5000, 1 << 19, (1 << 20) + 1])
@pytest.mark.parametrize("word", [b"0123456789abcdef", b""])
def test_a_long_blob(size: int, word: bytes) -> None:
    """Neither the shortest nor the longest are compressed, and nothing is lost."""
    blob = (word * (size // len(word) + 1))[:size] if word else os.urandom(size)
    payload = mpi.pack_with_blobs(Gathering("fence", ("0",), (blob,)))
    assert (payload[:1] == b"z") == (mpi.LEAST < size < mpi.MOST)
    assert len(payload) < size / 20 or not word or payload[:1] != b"z"
    assert len(payload) < size + size // 100 + 100  # what cannot be made shorter
    assert mpi.unpack_with_blobs(Gathering, payload).blobs == (blob,)


def test_the_longest_that_is_compressed() -> None:
    """To the byte."""
    around = len(mpi.pack_with_blobs(Gathering("fence", ("0",), (bytes(2 * mpi.MOST),)))) - 2 * mpi.MOST
    part = Gathering("fence", ("0",), (bytes(mpi.MOST - around),))
    payload = mpi.pack_with_blobs(part)
    assert payload[:1] == b"z" and len(zlib.decompress(payload[1:])) == mpi.MOST
    assert mpi.unpack_with_blobs(Gathering, payload) == part


@pytest.mark.parametrize(
    "payload",
    [
        b"z",
        b"z12 3\n",
        b"z" + zlib.compress(b"0" * (mpi.MOST + 1)),
        b"z" + zlib.compress(b"1 0\nx")[:-1],
        b"z" + zlib.compress(b"1 0\nx") + b"more",
        b"z" + zlib.compress(b"z" + zlib.compress(b"1 0\nx")),
    ],
    ids=["empty", "not compressed", "too long", "cut", "more", "twice"],
)
def test_badly_compressed_blobs_are_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        mpi.unpack_with_blobs(Gathering, payload)


@FEW
@given(st.builds(Question, NUMBERS, WORDS, FIELDS, BLOBS))
def test_a_question(question: Question) -> None:
    assert mpi.unpack_with_blobs(Question, mpi.pack_with_blobs(question)) == question


@FEW
@given(st.builds(Answer, NUMBERS, WORDS, FIELDS, BLOBS))
def test_an_answer(answer: Answer) -> None:
    assert mpi.unpack_with_blobs(Answer, mpi.pack_with_blobs(answer)) == answer


@FEW
@given(st.builds(Abort, st.integers(-5, 300), WORDS, st.booleans(), WORDS))
def test_an_abort(abort: Abort) -> None:
    assert unpack_record(Abort, mpi.pack_abort(abort)) == abort


@FEW
@given(st.builds(Alone, WORDS, WORDS, st.booleans(), WORDS))
def test_alone(alone: Alone) -> None:
    assert unpack_record(Alone, pack_record(alone)) == alone


def test_a_part() -> None:
    sources = {"mslaunch.agent.mpi.pmi.pmi_server": "import os\n", "mslaunch.agent.mpi.pmi.key_value_store": ""}
    assert mpi.unpack_part(pack_part(sources)) == sources


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_malformed_bytes_raise_one_kind_of_error(payload: bytes) -> None:
    for kind in (Gathering, Question, Answer):
        with pytest.raises(WireError):
            mpi.unpack_with_blobs(kind, payload)
