"""Fields: named lists of strings survive a round trip, and garbage raises only `WireError`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.protocol.codec import pack, unpack

FEW = settings(max_examples=100, deadline=None)
#: what can be in os.environ: any bytes without NUL
WORDS = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))


@FEW
@given(st.dictionaries(WORDS, st.lists(WORDS, max_size=5), max_size=5))
def test_fields_survive_a_round_trip(fields: dict[str, list[str]]) -> None:
    assert unpack(pack(fields)) == fields


@pytest.mark.parametrize(
    "fields", [{}, {"": []}, {"a": [""]}, {"a": ["", ""], "b": []}, {"1": ["2", "0"]}, {"a": ["\udcff"]}]
)
def test_empty_fields_and_lists(fields: dict[str, list[str]]) -> None:
    assert unpack(pack(fields)) == fields


@pytest.mark.parametrize("fields", [{"a\0": []}, {"a": ["b\0c"]}, {"a": ["\0"]}])
def test_a_nul_is_refused(fields: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match="NUL"):
        pack(fields)


@pytest.mark.parametrize("payload", [b"a", b"a\0x", b"a\x002\0b", b"a\0-1\0b", b"a\0", b"\0\0", b"a\x000\0b"])
def test_garbage_is_named(payload: bytes) -> None:
    with pytest.raises(WireError):
        unpack(payload)


@FEW
@given(st.one_of(st.binary(max_size=40), st.text("a\x00019-+_ ", max_size=30).map(str.encode)))
def test_garbage_raises_nothing_else(payload: bytes) -> None:
    try:
        fields = unpack(payload)
    except WireError:
        return
    assert unpack(pack(fields)) == fields
