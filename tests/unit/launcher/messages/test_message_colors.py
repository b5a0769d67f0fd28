"""Colours of messages: who gets them, and that nothing but colours is added."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import printable
from mslaunch.launcher.messages.message_colors import choice_of, painted, painter, wants_colors
from mslaunch.launcher.stdio.terminal import Console
from mslaunch.runtime.loop import Loop

XTERM = {"TERM": "xterm"}


@pytest.fixture(scope="module")
def terminal() -> Iterator[int]:
    main, other = os.openpty()
    yield other
    os.close(main)
    os.close(other)


@pytest.fixture(scope="module")
def pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("choice", "environ", "on_terminal", "on_pipe"),
    [
        ("auto", XTERM, True, False),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("auto", {**XTERM, "NO_COLOR": "1"}, False, False),
        ("auto", {**XTERM, "NO_COLOR": ""}, True, False),
        ("auto", {**XTERM, "CLICOLOR": "0"}, False, False),
        ("auto", {**XTERM, "CLICOLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, True, True),
        ("auto", {"TERM": "dumb", "CLICOLOR_FORCE": "1"}, True, True),
        ("auto", {**XTERM, "FORCE_COLOR": "0", "CLICOLOR_FORCE": ""}, True, False),
        ("auto", {"FORCE_COLOR": "3", "NO_COLOR": "1"}, False, False),
        ("yes", {"TERM": "dumb", "NO_COLOR": "1"}, True, True),
        ("no", {**XTERM, "FORCE_COLOR": "1"}, False, False),
    ],
)
def test_who_gets_colors(
    choice: str, environ: dict[str, str], on_terminal: bool, on_pipe: bool, terminal: int, pipe: int
) -> None:
    assert wants_colors(choice, environ, terminal) is on_terminal
    assert wants_colors(choice, environ, pipe) is on_pipe
    assert (painter(choice, environ, pipe) is not None) is on_pipe


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        ("-n 4 --color no prog", "no"),
        ("--color=yes -n", "yes"),
        ("-color no", "no"),
        ("--color no prog --color yes", "no"),
        ("--colors no --color", "auto"),
        ("color no", "auto"),
        ("--color blue", "auto"),
        ("", "auto"),
    ],
)
def test_a_line_that_was_not_understood_may_still_say_no(line: str, choice: str) -> None:
    assert choice_of(line.split()) == choice


@settings(deadline=None)
@given(st.sampled_from(["error", "notice", "detail"]), st.text(max_size=40), st.booleans())
def test_nothing_but_colors_is_added_and_all_are_ended(kind: str, text: str, ours: bool) -> None:
    text = printable(("mslaunch: rank 3 and ranks 0-1, 5 of world 2 " if ours else "") + text)
    colored = painted(kind, text)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text
    for line in colored.split("\n"):
        assert "\x1b" not in line or line.rpartition("\x1b")[2].startswith("[0m")


def test_the_parts_of_a_message() -> None:
    assert painted("error", "mslaunch: rank 2 ended with exit code 1 on n02\n  | ValueError\n") == (
        "\x1b[1;31mmslaunch:\x1b[0m\x1b[31m \x1b[1mrank 2\x1b[0;31m ended with exit code 1 on n02\x1b[0m\n"
        "\x1b[2m  | ValueError\x1b[0m\n"
    )
    assert painted("notice", "mslaunch: 8 ranks share 2 cores\n") == (
        "\x1b[33mmslaunch:\x1b[0m 8 ranks share 2 cores\n"
    )
    assert painted("detail", "mslaunch: connected\n") == "\x1b[2mmslaunch:\x1b[0m\x1b[2m connected\x1b[0m\n"


@pytest.mark.parametrize("colored", [True, False])
def test_escapes_of_others_are_no_colors(colored: bool) -> None:
    reader, writer = os.pipe()
    with Loop() as loop:
        console = Console(loop, writer, quiet=False, verbose=True, paint=painted if colored else None)
        console.info("\x1b[35mevil\x1b[0m host")
        console.verbose("more")
        console.print("a table\n")
        console.write("mslaunch: rank 1 ended\n", "error")
        console.finish([])
        text = os.read(reader, 1 << 16).decode()
    os.close(reader)
    os.close(writer)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain == "mslaunch: ?[35mevil?[0m host\nmslaunch: more\na table\nmslaunch: rank 1 ended\n"
    assert (plain == text) is not colored and "\na table\n" in text
