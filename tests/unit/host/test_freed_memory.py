"""Memory that the launcher frees goes back to the system: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: buffers of growing size, with small blocks among them that stay; writes by how many KiB the process has grown
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from mslaunch.host.freed_memory import return_freed_memory
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 10
if sys.argv[2] == "return":
    assert return_freed_memory()
kept, before = [], resident()
for _ in range(2):
    buffers = []
    for number in range(400):
        buffers.append(b"x" * (100_000 + 200 * number))
        kept.append(bytes(1024))
    del buffers
print(resident() - before)
"""


def growth(mode: str) -> int:
    words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(ROOT), mode]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def test_freed_buffers_go_back_to_the_system() -> None:
    assert growth("return") < 8192, "56 MB were in use, and 800 KiB still are"


def test_malloc_would_keep_them() -> None:
    assert growth("keep") > 16384, "otherwise the other test shows nothing"
