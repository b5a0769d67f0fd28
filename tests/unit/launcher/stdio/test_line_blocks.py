"""Blocks of a stream: lines, and tracebacks as Python itself prints them, however they arrive."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.launcher.stdio.line_blocks import BlockSplitter
from mslaunch.launcher.stdio.line_prefix import LONGEST
from mslaunch.protocol.frames import STDERR, STDOUT

PLAIN = """
def f(n):
    raise ValueError("nan")
f(1)
"""
CAUSED = """
def f():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise RuntimeError("step 3") from error
try:
    f()
except RuntimeError:
    raise KeyError("again")
"""
DEEP = """
def f(n):
    f(n + 1)
f(0)
"""
GROUP = """
def g():
    raise ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])
g()
"""


def splitter(times: list[float] | None = None) -> BlockSplitter:
    clock = times or [0.0]
    return BlockSplitter(lambda: clock[0])


def fed(data: bytes, cuts: list[int], rank: int = 0) -> list[bytes]:
    """The blocks of `data` when it comes in pieces that end at `cuts`."""
    split, blocks = splitter(), []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for first, end in zip(places, places[1:]):
        if data[first:end]:
            blocks += split.feed(STDERR, rank, data[first:end])
    return blocks + split.feed(STDERR, rank, b"")


def printed_by_python(text: str) -> bytes:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    return done.stderr


CUTS = st.lists(st.integers(0, 1 << 16), max_size=8)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"", b"a", b"\t"]), max_size=8), CUTS)
def test_lines_are_blocks_however_they_come(lines: list[bytes], cuts: list[int]) -> None:
    lines = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
    assert fed(b"".join(line + b"\n" for line in lines), cuts) == lines


@settings(deadline=None)
@given(CUTS)
def test_an_unfinished_line_is_a_block_at_the_end_of_its_stream(cuts: list[int]) -> None:
    assert fed(b"a\n\nrest", cuts) == [b"a", b"", b"rest"]


@settings(deadline=None)
@given(CUTS)
def test_of_a_line_that_was_written_again_and_again_the_last_state_is_left(cuts: list[int]) -> None:
    assert fed(b"a\r\n\r 10%\r 20%\r100%\ndone\r\n50%\r60%\r", cuts) == [b"a", b"100%", b"done", b"60%"]


def test_a_progress_bar_without_an_end_takes_no_memory() -> None:
    split = splitter()
    for number in range(10_000):
        assert split.feed(STDOUT, 0, b"\r%5d of 10000 and a bar" % number) == []
    assert split.feed(STDOUT, 0, b"") == [b" 9999 of 10000 and a bar"]


@settings(deadline=None)
@given(st.text("ab\r\n[", max_size=12).map(str.encode), CUTS)
def test_returns_and_line_ends_mean_the_same_however_they_come(data: bytes, cuts: list[int]) -> None:
    lines = data.split(b"\n")
    shown = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in (lines if lines[-1] else lines[:-1])]
    assert fed(data, cuts) == shown


@pytest.mark.parametrize("byte", [b"a", b"\r"])
def test_one_byte_more_does_not_copy_the_line_so_far(byte: bytes) -> None:
    """Or a program that writes single bytes would cost 64 KiB for each."""
    split = splitter()
    split.feed(STDOUT, 0, b"x" * (LONGEST - 1000))
    line = split._streams[STDOUT, 0].partial
    for _ in range(900):
        assert split.feed(STDOUT, 0, byte) == []
    assert split._streams[STDOUT, 0].partial is line, "it is added to"
    assert len(line) <= LONGEST - 1000 + (900 if byte == b"a" else 1), "returns are not gathered"


def test_a_line_without_an_end_is_cut() -> None:
    split = splitter()
    blocks = [block for _ in range(5) for block in split.feed(STDOUT, 0, b"x" * LONGEST)]
    blocks += split.feed(STDOUT, 0, b"")
    assert b"".join(blocks) == b"x" * (5 * LONGEST) and max(map(len, blocks)) <= 2 * LONGEST


@settings(deadline=None)
@given(CUTS)
def test_the_number_that_torch_puts_before_lines_is_left_out_if_it_is_that_of_the_rank(cuts: list[int]) -> None:
    text = b"[rank3]: loss\n[rank4]: loss\n[rank3]:[W1] note\n[rank3]: \n"
    assert fed(text, cuts, rank=3) == [b"loss", b"[rank4]: loss", b"[rank3]:[W1] note", b""]


@pytest.mark.parametrize("program", [PLAIN, CAUSED, DEEP], ids=["plain", "with causes", "recursion"])
@pytest.mark.parametrize("prefix", [b"", b"[rank0]: "])
@settings(deadline=None)
@given(cuts=CUTS)
def test_a_traceback_is_one_block_and_its_last_line(program: str, prefix: bytes, cuts: list[int]) -> None:
    text = TEXTS[program]
    lines = text.rstrip(b"\n").split(b"\n")
    assert lines[0].startswith(b"Traceback") and not lines[-1].startswith(b" ")
    sent = b"before\n" + b"".join(prefix + line + b"\n" for line in lines) + b"after\n"
    assert fed(sent, cuts) == [b"before", b"\n".join(lines[:-1]), lines[-1], b"after"]


TEXTS = {program: printed_by_python(program) for program in (PLAIN, CAUSED, DEEP)}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with 3.11")
@settings(deadline=None)
@given(cuts=CUTS)
def test_a_traceback_of_a_group_is_one_block(cuts: list[int]) -> None:
    text = GROUPED
    assert b"+ Exception Group Traceback" in text
    assert fed(b"before\n" + text + b"after\n", cuts) == [b"before", text.rstrip(b"\n"), b"after"]


GROUPED = printed_by_python(GROUP) if sys.version_info >= (3, 11) else b""


def test_what_only_looks_like_a_cause_is_no_part_of_a_traceback() -> None:
    text = traceback_text() + b"\nnot a cause\n"
    blocks = fed(text, [])
    assert blocks[-2:] == [b"", b"not a cause"] and blocks[1].startswith(b"ValueError")


def traceback_text() -> bytes:
    try:
        raise ValueError("here")
    except ValueError:
        return traceback.format_exc().encode()


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([*TEXTS[CAUSED].splitlines(keepends=True), b"\n", b"x\n", b"  y\n", b"half"]), max_size=20
    ),
    CUTS,
)
def test_whatever_stands_around_a_traceback_no_line_is_lost(lines: list[bytes], cuts: list[int]) -> None:
    text = b"".join(lines)
    blocks = fed(text, cuts)
    shown = b"\n".join(blocks) + b"\n" * bool(blocks)
    assert shown == text + (b"\n" if text and not text.endswith(b"\n") else b"")


def test_half_a_traceback_is_shown_after_a_second_and_a_whole_one_at_once() -> None:
    clock = [10.0]
    split = splitter(clock)
    whole = traceback_text()
    head = whole.splitlines(keepends=True)[0]
    assert split.feed(STDERR, 1, head) == [] and split.feed(STDERR, 0, whole) == [] and split.waits
    clock[0] += 0.04
    assert split.overdue() == []
    clock[0] += 0.02
    assert [row[:3] for row in split.overdue()] == [(STDERR, 0, 10.0)] and split.waits
    clock[0] += 1.0
    assert split.overdue() == [(STDERR, 1, 10.0, [head.rstrip(b"\n")])] and not split.waits
    assert split.feed(STDERR, 1, b"  the rest\n") == [b"  the rest"], "which comes as lines"


def test_a_traceback_without_an_end_is_cut() -> None:
    split = splitter()
    text = b"Traceback (most recent call last):\n" + b"  x\n" * LONGEST
    blocks = split.feed(STDERR, 0, text)
    assert max(map(len, blocks)) <= 2 * LONGEST and blocks[-1] == b"  x"
