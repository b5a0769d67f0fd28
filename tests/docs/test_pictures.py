"""The pictures of docs/ are those of a script, and show what mslaunch prints today."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make-pictures"
PICTURES = sorted(ROOT.glob("docs/*.svg"))


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_script_makes_it(path: Path, script: dict[str, Any]) -> None:
    assert path.stem in script["PICTURES"] or path.name == "scale.svg"  # scripts/simulate --write


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_it_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"<(script|image|iframe|foreignObject)\b|@import|@font-face|url\((?!#)", text)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd")
def test_it_shows_what_is_printed_today() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_line_of_status_is_in_no_picture(script: dict[str, Any]) -> None:
    """A machine on which the ranks need more than two seconds shows it."""
    shown = "\r\x1b[2mmslaunch: 4 ranks running\x1b[0m\x1b[K\r\x1b[2mmslaunch: 4 ranks, 3 s\x1b[0m\x1b[K\r\x1b[K"
    assert script["left_of"](f"one\r\n{shown}two\r\nthree\r\n{shown}") == "one\ntwo\nthree\n"


def drawn(script: dict[str, Any], text: str) -> str:
    return script["svg"]("terminal", script["PICTURES"]["terminal"], text)


def test_words_that_differ_are_seen_and_times_are_not(script: dict[str, Any]) -> None:
    words = script["words_of"]
    one = words(drawn(script, "$ mslaunch\nrank 2 ended after 1.4 s\n"))
    assert one == ["$ mslaunch", "rank 2 ended after 0 s"]
    assert words(drawn(script, "$ mslaunch\nrank 2 ended after 21.9 s\n")) == one
    assert words(drawn(script, "$ mslaunch\nrank 3 ended after 1.4 s\n")) != one


def test_colours_are_drawn_and_markup_is_not_ours(script: dict[str, Any]) -> None:
    text = drawn(script, "plain \x1b[31mred\x1b[0m <b> & more\n")
    assert re.search(r"fill: #ef8a8a", text)
    assert "<b>" not in text
    assert script["words_of"](text) == ["plain red <b> & more"]
