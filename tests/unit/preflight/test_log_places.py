"""Where logs go: what keeps them from being written there is told as what it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mslaunch.datamodel.request import OutputPolicy
from mslaunch.preflight.check_records import Finding
from mslaunch.preflight.log_places import log_findings


def found(folder: Path) -> list[Finding]:
    return list(log_findings(OutputPolicy(directory="logs/of/ranks", errfile="logs/of/ranks/%r"), str(folder)))


def test_a_place_that_can_be_written_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["stat", "mkdir", "statvfs"])
def test_any_error_of_a_file_system_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (tmp_path / "logs").mkdir()

    def stale(path: Any, *_: Any, **__: Any) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)

    with monkeypatch.context() as broken:
        broken.setattr(os, call, stale)
        (finding,) = found(tmp_path)  # one for a place, however many options name it
    folder = tmp_path / "logs" / "of" / "ranks" if call == "stat" else tmp_path / "logs"
    assert (finding.hosts, finding.check) == (("this host",), "logs")
    assert finding.what == f"--output-filename: nothing can be written in {folder}: Stale file handle"
    assert finding.repair[0] == f"ls -ld {folder}"


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 1000, 100, 100, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    (finding,) = found(tmp_path)
    assert finding.what == f"the disk of {tmp_path} is full: 400 KiB are free"
