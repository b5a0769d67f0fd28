"""A compromised host and --check: it can lie about itself, and spoils neither the report nor what is said of others."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "launch")]

from launching import Job, Result, environment  # noqa: E402

HOSTILE = ROOT / "tests" / "hostile" / "hostile_host.py"
HERE = os.uname().nodename
OPTIONS = ["--rsh-agent", f"{sys.executable} {HOSTILE}", "--agent-python", sys.executable]
HOSTS = ["-H", "localhost:1,good:1,evil:1"]


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """`check(word, *options)`: --check of three hosts, one of which answers as `word` says."""
    jobs: list[Job] = []

    def run(word: str, *options: str, program: tuple[str, ...] = (sys.executable, "-c", "import json")) -> Result:
        env = environment(HOSTILE_ATTACK="checks", HOSTILE_WORD=word, HOSTILE_LOG=str(tmp_path / "heard"))
        jobs.append(Job([*OPTIONS, *HOSTS, *options, *program], env, cwd=tmp_path))
        ended = jobs[-1].end(60)
        jobs[-1].wait_gone()
        return ended

    yield run
    for job in jobs:
        job.destroy()


def test_lies_are_bounded_and_harmless(check: Any) -> None:
    ended = check("lie", "--check", "--health-check", "true")
    text = ended.out.decode()
    assert (ended.code, "Traceback" in ended.err) == (3, False), ended
    assert "\x1b" not in text and "\x07" not in text
    assert not [line for line in text.splitlines() if line.startswith("n01")]
    assert len(text) < 200_000


def test_lies_as_json(check: Any) -> None:
    ended = check("lie", "--check", "--json", "--health-check", "true")
    assert ended.code == 3, ended
    found = json.loads(ended.out)
    assert {host["name"] for host in found["hosts"]} == {HERE, "good", "evil"}
    assert b"\x1b" not in ended.out
    blamed = {host for one in found["findings"] for host in one["hosts"] if one["check"] in ("health", "port", "disk")}
    assert blamed == {"evil"}, found["findings"]


@pytest.mark.parametrize("word", ["garbage", "twice", "other", "unasked"])
def test_what_is_no_answer_is_its_own_error(check: Any, word: str) -> None:
    ended = check(word, "--check", "--json")
    found = json.loads(ended.out)
    assert (ended.code, ended.err) == (3, "")
    errors = {host["name"]: host["error"] for host in found["hosts"]}
    assert errors.pop("evil")
    assert set(errors.values()) == {""}
    assert all(host["facts"] for host in found["hosts"] if host["name"] != "evil")


def test_silence_is_waited_for_no_longer_than_a_while(check: Any) -> None:
    found = json.loads(check("silent", "--check", "--json").out)
    errors = {host["name"]: host["error"] for host in found["hosts"]}
    assert errors == {HERE: "", "good": "", "evil": "it did not answer within 10 s"}


@pytest.mark.parametrize("word", ["lie", "garbage"])
def test_a_lie_about_health_refuses_the_launch(check: Any, word: str, tmp_path: Path) -> None:
    ended = check(word, "--health-check", "true", program=("touch", str(tmp_path / "started")))
    assert (ended.code, (tmp_path / "started").exists()) == (255, False), ended
    assert "evil" in ended.err
    assert "\x1b" not in ended.err
