"""Memory that buffers have used is used again, and goes back to the system: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: buffers of growing size in several threads, with small blocks among them that stay; after that, the loop's timers;
#: writes by how many KiB the process has grown
PROGRAM = """
import os, sys, threading
sys.path.insert(0, sys.argv[1])
from mslaunch.runtime.reused_memory import reuse_freed_memory
class Loop:
    timers = []
    def after(self, seconds, callback):
        self.timers.append(callback)
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 10
loop = Loop()
reuse_freed_memory()(loop)
def link():
    for _ in range(2):
        buffers = []
        for number in range(100):
            buffers.append(b"x" * (30_000 + 2_000 * number))
            kept.append(bytes(1024))
        met.wait()
        del buffers
        met.wait()
kept, before, met = [], resident(), threading.Barrier(4)
threads = [threading.Thread(target=link) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for _ in range(int(sys.argv[2])):
    loop.timers.pop()()
print(resident() - before)
"""

#: a link's reads, each of which is freed before the next; writes how many page faults they took
READS = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from mslaunch.runtime.reused_memory import reuse_freed_memory
assert reuse_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for number in range(1000):
    data = b"x" * (200_000 + number)
    del data
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(("times", "bound"), [(1, 8192), (2, 8192)])
def test_what_is_free_goes_back_again_and_again(times: int, bound: int) -> None:
    assert _growth(times) < bound, "50 MB were in use, and 800 KiB still are"


def test_between_these_times_it_is_kept() -> None:
    assert _growth(0) > 16384, "otherwise the other test shows nothing"


def _growth(times: int) -> int:
    return _number(PROGRAM, str(times))


def test_a_buffer_is_used_again() -> None:
    assert _number(READS) < 1000, "50,000 if each were mapped"


def _number(program: str, *words: str) -> int:
    argv = [sys.executable, "-I", "-S", "-c", program, str(ROOT), *words]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
