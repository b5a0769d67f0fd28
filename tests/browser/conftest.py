"""One browser for all tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from headless import PROGRAMS, Browser


@pytest.fixture(scope="module")  # other tests of this process count its children, and reap them
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"NOT TESTED, not installed: {PROGRAMS[0]}")
    found = Browser(program, tmp_path_factory.mktemp("browser"))
    yield found
    found.close()
