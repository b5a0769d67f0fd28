"""Fixtures of the SSH tests: a lab with private hosts, and links that are always closed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import SSHD, SshLab
from sshlinks import Opener


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in ("ssh-keygen", "ssh-agent", "ssh-add", "ssh") if not shutil.which(name)]
    missing += [] if SSHD else ["sshd"]
    if missing:
        for item in items:
            if item.get_closest_marker("sshd"):
                item.add_marker(pytest.mark.skip(reason=f"NOT TESTED, not installed: {', '.join(missing)}"))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshLab]:
    monkeypatch.setattr("mslaunch.transport.ssh.config.ssh_config.SYSTEM", str(tmp_path / "ssh_config"))
    made = SshLab(tmp_path)
    yield made
    made.close()


@pytest.fixture
def opener(lab: SshLab) -> Iterator[Opener]:
    made = Opener(lab)
    yield made
    for link in made.links:
        link.close()
    for link in made.links:
        assert link.wait(15)
