"""SECURITY.md names the version of today, and invents no address."""

from __future__ import annotations

import re
from pathlib import Path

import mslaunch

TEXT = (Path(__file__).resolve().parents[2] / "SECURITY.md").read_text(encoding="utf-8")


def test_the_newest_version_is_supported() -> None:
    series = mslaunch.__version__.rpartition(".")[0]
    assert re.findall(r"^\| ([\d.]+) \(the newest\) \| yes \|$", TEXT, re.MULTILINE) == [series]


def test_there_is_no_address() -> None:
    """The repository may be anywhere; its own host knows where reports go."""
    assert "://" not in TEXT and "@" not in TEXT
