"""What a check that takes long shows."""

from __future__ import annotations

import pytest

from mslaunch.preflight import check_progress
from mslaunch.preflight.check_progress import CheckProgress
from mslaunch.runtime.loop import Loop


def test_a_long_check_shows_what_it_does_and_erases_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_progress, "_QUIET", 0.01)
    shown: list[str] = []
    with Loop() as loop:
        progress = CheckProgress(loop, shown.append)
        progress.tell("looking at 2 hosts")
        assert shown == []
        loop.run(lambda: bool(shown), 5)
        progress.tell("measuring links, 0 of 1")
        progress.close()
    assert shown == ["looking at 2 hosts", "measuring links, 0 of 1", ""]


def test_a_short_check_shows_nothing() -> None:
    shown: list[str] = []
    with Loop() as loop:
        progress = CheckProgress(loop, shown.append)
        progress.tell("looking at 2 hosts")
        progress.close()
        loop.run(lambda: False, 0.01)
    assert shown == []
