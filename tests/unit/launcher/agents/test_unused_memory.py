"""Memory that was freed goes back once the process is idle: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mslaunch.launcher.agents import unused_memory
from mslaunch.launcher.agents.unused_memory import UnusedMemory

ROOT = Path(__file__).resolve().parents[4]
#: blocks that are freed but for every fiftieth; writes by how many KiB the process has grown
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from mslaunch.host.freed_memory import return_freed_memory
from mslaunch.launcher.agents.unused_memory import UnusedMemory, _resident
assert return_freed_memory()
memory = UnusedMemory(lambda: 0.0)
before = _resident()
kept = [bytes(b"x") * 30_000 for _ in range(2000)][::50]
if sys.argv[2] == "give back":
    memory.give_back(5.0)
print((_resident() - before) * os.sysconf("SC_PAGESIZE") >> 10)
"""


def growth(mode: str) -> int:
    words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(ROOT), mode]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def test_freed_blocks_go_back_to_the_system() -> None:
    assert growth("give back") < 8192, "60 MB were in use, and 1.2 MB still are"


def test_malloc_would_keep_them() -> None:
    assert growth("keep") > 32768, "otherwise the other test shows nothing"


class Process:
    """How much this one has worked, how large it is, and how often memory was given back."""

    def __init__(self) -> None:
        self.worked, self.pages, self.given = 0.0, 1000, 0
        self.memory = UnusedMemory(lambda: self.worked)

    def later(self, worked: float, pages: int) -> int:
        """Five seconds later: how often by then."""
        self.worked += worked
        self.pages = pages
        self.memory.give_back(5.0)
        return self.given

    def give(self) -> None:
        self.given += 1
        self.pages = min(self.pages, 1000)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(unused_memory, "_resident", lambda: made.pages)
    monkeypatch.setattr(unused_memory, "_trim", made.give)
    return made


def test_a_process_that_is_at_work_is_left_alone(process: Process) -> None:
    assert process.later(1.0, 9000) == 0
    assert process.later(0.1, 9000) == 1


def test_one_that_has_hardly_grown_is_left_alone(process: Process) -> None:
    assert process.later(0.0, 1000) == 1
    assert process.later(0.0, 1200) == 1
    assert process.later(0.0, 1300) == 2
