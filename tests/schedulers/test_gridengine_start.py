"""`scripts/gridengine up` where sge_qmaster, whose command returns before it listens, takes its time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from scheduler_lib import gridengine
from scheduler_lib.command import SchedulerError


class _SlowHead:
    """The head, where qconf is refused `refusals` times."""

    def __init__(self, directory: Path, refusals: int) -> None:
        self.directory = str(directory)
        self.refusals = refusals
        self.ran: list[str] = []

    def path(self, *parts: str) -> str:
        return str(Path(self.directory, *parts))

    def on(self, where: str, *argv: str, environ: dict[str, str]) -> str:
        self.ran.append(argv[0])
        if argv[0] == "qconf" and self.ran.count("qconf") <= self.refusals:
            raise SchedulerError("qconf on head: Connection refused")
        return ""


def test_qmaster_is_asked_until_it_answers(tmp_path: Path) -> None:
    head = _SlowHead(tmp_path, refusals=3)
    gridengine._start_qmaster(head, {})
    assert head.ran == ["sge_qmaster", *["qconf"] * 4]


def test_a_qmaster_that_never_answers_is_reported_with_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "qmaster").mkdir()
    (tmp_path / "qmaster" / "messages").write_text("E|no spool\n")
    monkeypatch.setattr(gridengine, "QMASTER_STARTS", 0.0)
    with pytest.raises(SchedulerError, match=r"refused; sge_qmaster says: E\|no spool"):
        gridengine._start_qmaster(_SlowHead(tmp_path, refusals=9), {})
