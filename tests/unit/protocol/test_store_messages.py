"""What launcher and agents say of a key store."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.protocol import store_messages as messages
from mslaunch.protocol.store_messages import StoreMessage

NAMES = st.from_regex(r"[!-.0-~]{1,40}/[!-.0-~]{1,40}", fullmatch=True)
NUMBERS = st.integers(0, 10**18)


@given(st.sampled_from([messages.PUT, messages.DELETE]), NUMBERS, NAMES, st.binary(max_size=200))
def test_a_write_arrives_as_it_was(what: str, number: int, name: str, value: bytes) -> None:
    message = StoreMessage(what, number, name, value)
    assert messages.unpack_write(message.pack()) == message


@given(st.binary(max_size=3000))
def test_a_value_arrives_as_it_was(value: bytes) -> None:
    assert messages.expanded(messages.compressed(value)) == value


@pytest.mark.parametrize(
    "payload",
    [b"", b"put 1 global/0", b"put 1 global\n", b"put 1 /0\n", b"put 1 a/b/c\n", b"put 1 a/\xff\n", b"put -1 a/b\n",
     b"put 1 a/b c\n", b"value 1 a/b\n", b"put 1 " + b"a" * 500 + b"/0\n", b"put " + b"9" * 70 + b" a/b\n"],
)  # fmt: skip
def test_what_is_no_write(payload: bytes) -> None:
    with pytest.raises(WireError):
        messages.unpack_write(payload)


@pytest.mark.parametrize(
    "value", [b"", b"no zlib", zlib.compress(b"x") + b"more", zlib.compress(bytes(messages.VALUE_SIZE + 1))]
)
def test_values_that_cannot_be_expanded(value: bytes) -> None:
    with pytest.raises(WireError):
        messages.expanded(value)
