"""The standard error of a program: read by the loop or by whoever waits, bounded, and left when its time has come."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from open_descriptors import open_descriptors

from mslaunch.datamodel.jobmap import Node
from mslaunch.runtime.loop import Loop
from mslaunch.transport.last_words import LastWords
from mslaunch.transport.rsh_program import ProcessLink

MUCH = 100 << 20  # bytes
FLOOD = f"head -c {MUCH} /dev/zero >&2; echo end >&2"


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


def started(words: LastWords, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", script], stderr=words.pipe)


def test_what_a_program_says_without_end_is_read_and_dropped(loop: Loop) -> None:
    words = LastWords()
    process = started(words, FLOOD)
    words.begin(loop)
    assert loop.run(lambda: words.fileno() < 0, 60), "the end of the pipe closes it"
    assert process.wait(10) == 0
    assert words.said() == b"\0" * 4092 + b"end\n"


def test_the_others_have_their_turns_meanwhile(loop: Loop) -> None:
    """One read of a pipe is one turn."""
    words, turns = LastWords(), 0
    process = started(words, "exec cat /dev/zero >&2")
    words.begin(loop)
    reader, writer = os.pipe()

    def turn() -> None:
        nonlocal turns
        turns += 1

    loop.reader(writer, None)
    loop.writer(writer, turn)
    try:
        assert loop.run(lambda: turns > 100, 30)
        slept: list[float] = []
        loop.after(0.01, lambda: slept.append(loop.now()))
        assert loop.run(lambda: bool(slept), 10)
    finally:
        loop.writer(writer, None)
        process.kill()
        process.wait()
        words.close()
        os.close(reader)
        os.close(writer)


def test_who_inherits_it_is_not_waited_for(loop: Loop) -> None:
    """As ssh's master of ControlPersist: its end of the pipe stays open after the program has ended."""
    words = LastWords()
    process = started(words, "sleep 600 & echo $!; echo last >&2")
    assert process.wait(10) == 0
    words.begin(loop)
    begun = time.monotonic()
    assert words.said() == b"last\n"
    words.close()
    assert time.monotonic() - begun < 5
    assert words.said() == b"last\n"


@pytest.fixture
def link(loop: Loop) -> Iterator[Callable[..., ProcessLink]]:
    """Begins a link through a shell script."""
    made: list[ProcessLink] = []

    def begin(script: str) -> ProcessLink:
        made.append(ProcessLink(Node("n1", 1, "test"), ["sh", "-c", script], loop))
        made[-1].begin()
        return made[-1]

    before = open_descriptors()
    yield begin
    for each in made:
        each.close()
        each.kill()
        assert each.wait(10)
    assert open_descriptors() == before, "nothing stays open"


def test_a_program_that_floods_while_its_end_is_waited_for_can_end(link: Callable[..., ProcessLink]) -> None:
    flooding = link(f"cat >/dev/null; {FLOOD}; exit 3")
    flooding.close()
    assert flooding.wait(60)
    assert flooding.exit_status == 3
    assert flooding.noise().endswith(b"end\n")


def test_a_program_is_listened_to_after_its_link_was_closed(loop: Loop, link: Callable[..., ProcessLink]) -> None:
    """It would be ended by SIGPIPE, or wait."""
    late = link("cat >/dev/null; echo goodbye >&2; exit 4")
    late.close()
    assert loop.run(lambda: late.noise() == b"goodbye\n", 10)
    assert late.wait(10)
    assert late.exit_status == 4


def test_a_program_that_cannot_be_run_leaves_nothing(loop: Loop) -> None:
    before = open_descriptors()
    missing = ProcessLink(Node("n1", 1, "test"), ["/no/such/program"], loop)
    missing.begin()
    assert "cannot be run" in str(missing.failure())
    loop.run(lambda: False, 0.01)
    missing.close()
    assert missing.wait(1)
    assert open_descriptors() == before


def test_a_thread_that_listens_ends_although_somebody_holds_the_pipe() -> None:
    """Such as the master of a jump host's ControlPersist: closing a descriptor wakes nobody who polls it."""
    words = LastWords()
    held = os.dup(words.pipe)
    try:
        words.begin()
        thread = threading.Thread(target=words.listen, daemon=True)
        thread.start()
        os.write(held, b"goodbye")
        words.close()
        thread.join(20)
        assert not thread.is_alive()
    finally:
        os.close(held)
