"""Lines of output and their prefixes."""

from __future__ import annotations

import os
import re
import time

import pytest
from fake_output import places_of
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import UsageError
from mslaunch.launcher.stdio.line_prefix import LONGEST, LineGuard, LineSplitter, Prefix
from mslaunch.protocol.frames import STDERR, STDOUT

HERE = re.escape(f"mslaunch-{os.uname().nodename}-{os.getpid()}@1")
WHEN = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [  # rank 3 on host beta, process 77; each line was copied from the output of the real command
        (OutputPolicy(tag="tag"), r"\[1,3\]<stdout>:text"),
        (OutputPolicy(tag="tag", style="5.0"), r"\[1,3\]<stdout>: text"),
        (OutputPolicy(tag="rank"), r"\[3\] text"),
        (OutputPolicy(tag="rank", style="5.0"), r"\[3\]<stdout>: text"),
        (OutputPolicy(tag="detailed", style="5.0"), r"\[1,3\]\[beta:77\]<stdout>: text"),
        (OutputPolicy(tag="fullname", style="5.0"), r"\[HERE,3\]<stdout>: text"),
        (OutputPolicy(tag="detailed-fullname", style="5.0"), r"\[HERE,3\]\[beta:77\]<stdout>: text"),
        (OutputPolicy(tag="detailed"), r"\[1,3\]\[beta:77\]<stdout>: text"),
        (OutputPolicy(timestamp=True), f"{WHEN}<stdout>:text"),
        (OutputPolicy(timestamp=True, style="5.0"), rf"\[{WHEN}\]<stdout>: text"),
        (OutputPolicy(tag="tag", timestamp=True), rf"{WHEN}\[1,3\]<stdout>:text"),
        (OutputPolicy(tag="tag", timestamp=True, style="5.0"), rf"\[{WHEN}\]\[1,3\]<stdout>: text"),
        (OutputPolicy(prepend="%r,%g,%p,%h,%%|"), r"3,0,1,beta,%\|text"),
        (OutputPolicy(prepend="plain "), "plain text"),
    ],
    ids=str,
)
def test_tags_are_those_of_mpirun(policy: OutputPolicy, expected: str) -> None:
    prefix = Prefix(policy, places_of(4))
    prefix.started(3, 77)
    expected = expected.replace(
        "HERE", HERE
    )  # replaced here, because the id of a test must be the same in every process
    assert re.fullmatch(expected, prefix.format(STDOUT, 3, b"text").decode())


def test_a_restarted_rank_has_another_pid_in_its_prefix() -> None:
    prefix = Prefix(OutputPolicy(tag="detailed"), places_of(1))
    for pid in (10, 11):
        prefix.started(0, pid)
        assert prefix.format(STDERR, 0, b"a\n") == b"[1,0][alpha:%d]<stderr>: a\n" % pid


def test_each_line_has_a_prefix_and_no_line_end_is_added() -> None:
    dress = Prefix(OutputPolicy(tag="rank"), places_of(1)).format
    assert dress(STDOUT, 0, b"a\n\nb\n") == b"[0] a\n[0] \n[0] b\n"
    assert dress(STDOUT, 0, b"a\nb") == b"[0] a\n[0] b"
    assert dress(STDOUT, 0, b"\n") == b"[0] \n"


def test_time_stamps_pad_the_day_as_ctime_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "ctime", lambda: time.asctime((2026, 11, 1, 0, 27, 4, 6, 305, 0)))
    dress = Prefix(OutputPolicy(timestamp=True), places_of(1)).format
    assert dress(STDOUT, 0, b"a") == b"Sun Nov  1 00:27:04 2026<stdout>:a"


def test_an_unknown_letter_in_a_pattern_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        Prefix(OutputPolicy(prepend="[%z] "), places_of(1))
    assert caught.value.where == "-prepend-pattern" and "%z" in caught.value.what and "%r" in caught.value.todo


# --- lines


def keep(kind: int, rank: int, lines: bytes) -> bytes:
    return lines


CHUNKS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"bc", b"\n", b"d\ne", b"\n\n", b"\xff", b"\r", b"\0"])),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(CHUNKS)
def test_lines_come_whole_and_in_the_order_of_their_rank(chunks: list[tuple[int, bytes]]) -> None:
    dress = Prefix(OutputPolicy(prepend="%r>"), places_of(3)).format
    lines = LineSplitter(dress)
    seen = dict.fromkeys(range(3), b"")
    for rank, data in chunks:
        piece = lines.feed(STDOUT, rank, data)
        assert not piece or piece.endswith(b"\n"), "only whole lines before the end"
        seen[rank] += piece
    for rank in range(3):
        text = b"".join(data for one, data in chunks if one == rank)
        *whole, rest = text.split(b"\n")
        assert ((STDOUT, rank) in lines.unfinished()) == bool(rest)
        expected = b"".join(b"%d>%s\n" % (rank, line) for line in whole)
        assert seen[rank] == expected
        assert lines.feed(STDOUT, rank, b"") == (b"%d>%s" % (rank, rest) if rest else b"")
    assert lines.unfinished() == []


def test_streams_do_not_mix() -> None:
    lines = LineSplitter(keep)
    assert lines.feed(STDOUT, 0, b"a") == lines.feed(STDOUT, 1, b"b") == b""
    assert lines.feed(STDERR, 0, b"c\n") == b"c\n"
    assert lines.feed(STDOUT, 0, b"A\n") == b"aA\n"
    assert lines.feed(STDOUT, 1, b"B\n") == b"bB\n"


def test_a_line_without_end_is_not_kept_forever() -> None:
    lines = LineSplitter(keep)
    taken = [lines.feed(STDOUT, 0, b"x" * (LONGEST // 2)) for _ in range(3)]
    assert [len(piece) for piece in taken] == [0, 0, LONGEST // 2 * 3]
    assert lines.feed(STDOUT, 0, b"y") == b""
    assert lines.feed(STDOUT, 0, b"\n") == b"y\n"


def test_a_line_is_ended_before_that_of_another_stream() -> None:
    seams = LineGuard()
    assert seams.join(STDOUT, 0, b"a") + seams.join(STDOUT, 0, b"b") == b"ab"
    assert seams.join(STDERR, 0, b"c\n") == b"\nc\n"
    assert seams.join(STDOUT, 1, b"d\n") + seams.join(STDOUT, 0, b"e") == b"d\ne"
    assert seams.join(STDOUT, 1, b"f") == b"\nf"
