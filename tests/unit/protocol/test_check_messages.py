"""CHECK and CHECKED: what is packed comes back, and nothing else is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.preflight.ask_hosts import cleaned
from mslaunch.protocol import check_messages as messages

WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=20)
PROGRAMS = st.lists(
    st.builds(
        messages.ProgramFacts,
        st.integers(0, 99),
        *[WORDS] * 5,
        st.integers(-1, 99),
        WORDS,
        WORDS,
        st.tuples(WORDS),
        st.tuples(WORDS),
        st.tuples(WORDS),
        *[WORDS] * 3,
    ),
    max_size=3,
)


@given(st.integers(0, 1 << 20), st.lists(st.integers(0, 65535), max_size=3).map(tuple))
def test_a_record_comes_back(ranks: int, ports: tuple[int, ...]) -> None:
    question = messages.HostQuestion(ranks, ports)
    payload = messages.pack_check(messages.HOST, question)
    assert messages.unpack_check(messages.HOST, messages.HostQuestion, payload) == question
    with pytest.raises(WireError):
        messages.unpack_check(messages.LISTEN, messages.HostQuestion, payload)


@given(PROGRAMS)
def test_programs_come_back(found: list[messages.ProgramFacts]) -> None:
    assert messages.unpack_programs(messages.pack_programs(found)) == found


def test_texts_may_hold_anything() -> None:
    facts = messages.CommandFacts("", 3, "a\0b\udcffc")
    payload = messages.pack_check(messages.COMMAND, facts)
    assert messages.unpack_check(messages.COMMAND, messages.CommandFacts, payload).output == "a b\udcffc"
    (found,) = messages.unpack_programs(messages.pack_programs([messages.ProgramFacts(0, "a\0b")]))
    assert found.error == "a b"


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_understood(payload: bytes) -> None:
    for body in (payload, b"programs\n" + payload, b"host\n" + payload):
        for read in (
            messages.unpack_programs,
            lambda data: messages.unpack_check(messages.HOST, messages.HostFacts, data),
        ):
            try:
                read(body)
            except WireError:
                pass


def test_what_hosts_say_is_bounded() -> None:
    facts = messages.LinkFacts("\x1b[2J" + "x" * 5000, "a\nb", float("nan"), float("inf"), 1 << 90, -5)
    clean = cleaned(facts)
    assert (len(clean.error), clean.error.isprintable(), clean.address.count("\n")) == (1000, True, 0)
    assert (clean.delay, clean.rate <= 1e15, clean.sent <= 1 << 62, clean.again) == (0.0, True, True, -1)
    many = messages.HostQuestion(0, tuple(range(5000)))
    assert len(cleaned(many).ports) == 256
