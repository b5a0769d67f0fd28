"""The second user of these tests is one: it cannot do what only we can."""

from __future__ import annotations

from pathlib import Path

import pytest
from other_user import UID, python_as

pytestmark = pytest.mark.usefixtures("second_user")


def test_it_is_another_user(commons: Path) -> None:
    ours = commons / "ours"
    ours.write_text("secret")
    ours.chmod(0o600)
    assert python_as(UID, "import os; print(os.getuid(), os.geteuid(), os.getgroups())").stdout == b"%d %d []\n" % (
        UID,
        UID,
    )
    assert b"PermissionError" in python_as(UID, "import sys; open(sys.argv[1])", str(ours)).stderr
