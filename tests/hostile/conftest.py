"""What the attacks share: a second user, and a directory that both users can enter."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def second_user(need: Callable[..., str]) -> None:
    """Programs can be run as another user; without root that cannot be had, and the test is skipped."""
    need("setpriv")
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED, needs root: a second user")


@pytest.fixture
def commons() -> Iterator[Path]:
    """A directory in the temporary directory that every user can enter and write, with the sticky bit, as /tmp."""
    path = Path(tempfile.mkdtemp(prefix="mslaunch-hostile-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)
