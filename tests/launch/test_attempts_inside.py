"""Later attempts seen from inside, through the Python API: what they keep, and what goes wrong between them."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

from mslaunch import launch
from mslaunch.errors import UsageError
from mslaunch.launcher import attempt as job_attempt
from mslaunch.launcher.recovery import group_restart
from mslaunch.runtime.loop import Loop

GROUP = ["--restart", "group", "--quiet", "--max-restarts"]
FAILS = ["sh", "-c", "exit 3"]


def test_the_loop_keeps_nothing_of_attempts_that_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers for repeated kills and for the time limit once held each attempt until they fired."""
    kept = []
    prepare = group_restart.GroupRestart._prepare

    def counted(self: group_restart.GroupRestart, *words: Any) -> str:
        loop: Loop = self._context.loop
        kept.append(sum(timer.callback is not None for _, _, timer in loop._timers))
        return prepare(self, *words)

    monkeypatch.setattr(group_restart.GroupRestart, "_prepare", counted)
    outcome = launch(FAILS, np=1, options=[*GROUP, "4"], timeout=60)
    assert (outcome.code, len(outcome.attempts)) == (3, 4)
    assert kept == [2] * 5, "the limit of the whole launch, and the heartbeat"


def test_an_error_between_two_attempts_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    make = job_attempt.make_plans

    def refusing(*words: Any, attempt: int, **named: Any) -> Any:
        if attempt > 1:
            raise UsageError("it is too long", "-x NAME")
        return make(*words, attempt=attempt, **named)

    monkeypatch.setattr(job_attempt, "make_plans", refusing)
    gc.collect()  # what earlier tests have left
    before = os.listdir("/proc/self/fd")
    outcome = launch(FAILS, np=1, options=[*GROUP, "4"])
    assert outcome.code == 3 and outcome.failure
    assert outcome.failure.detail == ("not started again: -x NAME: it is too long",)
    assert not outcome.attempts
    gc.collect()
    assert os.listdir("/proc/self/fd") == before
