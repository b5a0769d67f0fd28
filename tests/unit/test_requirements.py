"""The pinned packages of tests/requirements, and the audit of them: no network."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "requirements").glob("*.txt"))


def test_the_files_belong_to_their_inputs() -> None:
    words = [sys.executable, str(ROOT / "scripts" / "make-constraints"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_package_has_a_version_and_hashes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    packages = re.split(r"^(?=[A-Za-z])", text, flags=re.MULTILINE)[1:]
    assert packages
    for package in packages:
        assert re.match(r"[\w.-]+==[\w.]+", package), package
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", package), package
    assert "://" not in text  # the registry is the user's choice


def test_an_upper_bound_keeps_an_unknown_paramiko_away() -> None:
    """Private names of it are used (tests/ssh/test_offered_algorithms.py)."""
    assert re.search(r'"paramiko>=[\d.]+,<\d+"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def audit() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "audit"))


HOLE = {"id": "CVE-0", "fix_versions": ["2"]}
ANSWERS: dict[str, tuple[list[dict[str, Any]], int, str]] = {
    "all known, none bad": ([{"name": "a", "version": "1", "vulns": []}], 0, "1 packages, no known"),
    "one bad": ([{"name": "a", "version": "1", "vulns": [HOLE]}], 1, "a 1: CVE-0, fixed in 2"),
    "one bad, one unknown": (
        [{"name": "a", "version": "1", "vulns": [HOLE]}, {"name": "b", "skip_reason": "?"}],
        1,
        "b",
    ),
    "one unknown": (
        [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}],
        3,
        "NOT AUDITED: b",
    ),
    "nothing": ([], 3, "NOT AUDITED"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_was_not_looked_up_is_not_called_safe(
    audit: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """pip-audit itself says `No known vulnerabilities found` where it could look nothing up."""
    found, code, text = ANSWERS[name]
    assert audit["verdict"]("dev", found) == code
    said = capsys.readouterr()
    assert text in said.out + said.err
    assert ("no known vulnerability" in said.out) == (code == 0)


def test_the_audit_takes_every_pin(audit: dict[str, Any]) -> None:
    names = re.findall(r"^([\w.-]+)==", audit["pins"]("dev"), re.MULTILINE)
    assert {"paramiko", "cryptography", "pynacl", "bcrypt", "pytest"} <= set(names)
    assert "--hash" not in audit["pins"]("dev")
