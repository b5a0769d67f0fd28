"""--top on a terminal: what it shows while a job has no answer."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from mslaunch.cli.actions import live_commands
from mslaunch.errors import LaunchError
from mslaunch.jobs import control_socket
from mslaunch.jobs.job_registry import JobRegistry
from mslaunch.jobs.launcher_pid import process

TABLE: dict[str, Any] = {"seconds": 1, "attempt": 1, "rate": 0, "ranks": [{"rank": 0, "state": "running"}]}
BETWEEN: dict[str, Any] = {"error": "no rank runs just now: hosts are being connected, or the ranks have ended"}


class FakeLive:
    """Has the interface of `rich.live.Live`, and keeps what was shown."""

    shown: ClassVar[list[str]] = []

    def __init__(self, **how: Any) -> None:
        pass

    def __enter__(self) -> FakeLive:
        FakeLive.shown = []
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def update(self, text: str, refresh: bool) -> None:
        FakeLive.shown.append(text)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Watches a job whose launcher gives these answers, and then ends."""
    entry = JobRegistry({"MSLAUNCH_JOBS": str(tmp_path / "jobs")}).add(
        command=["mslaunch"], cwd="/", began=time.time(), process=process(os.getpid()), ranks=1, logs=None, grace=1.0,
        running=time.time(),
    )  # fmt: skip
    monkeypatch.setattr(live_commands, "time", SimpleNamespace(sleep=lambda seconds: None))

    def run(*answers: Any) -> Any:
        left = list(answers)

        def ask(folder: str, question: Any) -> Any:
            if not left:
                entry.note(code=0, ended=time.time(), how="all ranks succeeded")
                raise FileNotFoundError
            if isinstance(left[0], Exception):
                raise left.pop(0)
            return left.pop(0)

        monkeypatch.setattr(control_socket, "ask", ask)
        return live_commands._watch(entry, FakeLive, str)

    return run


def test_a_job_between_two_attempts_has_not_ended(watch: Any) -> None:
    show = watch(TABLE, BETWEEN, TimeoutError(110, "no whole answer came in time"), {**TABLE, "attempt": 2})
    first, between, busy, again = FakeLive.shown
    assert "attempt 1" in first and "attempt 2" in again
    assert between.startswith("job 1: no rank runs just now") and "did not answer: no whole answer" in busy
    assert (show.text, show.code) == ("job 1 has ended", 0)


def test_a_job_that_does_not_answer_at_first_is_an_error(watch: Any) -> None:
    with pytest.raises(LaunchError, match="no rank runs"):
        watch(BETWEEN)
