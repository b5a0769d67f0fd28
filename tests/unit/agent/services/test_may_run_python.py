"""Which programs cannot be MindSpore's: those that neither are a Python nor can start one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from mslaunch.agent.services.manager import may_run_python


@pytest.mark.parametrize("name", ["true", "sleep", "cat", "hostname"])
def test_programs_that_start_nothing(name: str) -> None:
    assert not may_run_python(shutil.which(name) or name, {}, "/")


@pytest.mark.parametrize("name", ["sh", "bash", "env", "nice", "timeout", "perl", "awk", "ssh"])
def test_programs_that_can_start_others(name: str) -> None:
    assert may_run_python(shutil.which(name) or name, {}, "/")


def test_interpreters_and_what_nobody_can_tell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/true\n")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF" + bytes(60))
    os.mkfifo(tmp_path / "fifo")
    for path in (sys.executable, os.path.realpath(sys.executable), "script", "broken", "fifo", "missing", "."):
        assert may_run_python(path, {}, str(tmp_path)), path


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT"])
def test_a_library_that_is_brought_in_may_do_anything(name: str) -> None:
    assert may_run_python("/bin/true", {name: "x.so"}, "/")
