"""Figures for the design: the cost of imports and of signs of life, and the throughput of pipes and pseudo-terminals.

Only `heartbeats` uses mslaunch.  Streams are also measured by when the first line arrives: from a program that buffers
as for a file, with the last one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import termios
import time
from collections.abc import Sequence

from bench_lib.timing import bounded, clean_environ, ends

MODULES = ("typing", "json", "signal", "socket", "selectors", "re", "asyncio", "paramiko")
BULK = "import os\nblock = b'x' * 65536\nfor _ in range({0} // 65536): os.write(1, block)"
LINES = "for number in range({0}): print('step', number)"
SLOW = "import time\nfor number in range(20): print('step', number); time.sleep(0.02)"
Line = Sequence[str]


def imports(python: str, rounds: int) -> list[Line]:
    """Milliseconds that each adds to a bare start (medians of differences of neighbours), and modules loaded."""
    extra: dict[str, list[float]] = {name: [] for name in MODULES}
    bare = []
    for turn in range(rounds + 1):
        for name in MODULES:
            without = bounded([python, "-I", "-c", "pass"], 20)
            with_it = bounded([python, "-I", "-c", f"import {name}"], 20)
            if turn and without.good and with_it.good:
                bare.append(without.seconds)
                extra[name].append(with_it.seconds - without.seconds)
    lines: list[Line] = [("nothing", f"{statistics.median(bare) * 1000:.1f} ms", "")]
    for name, times in extra.items():
        cells = [f"+{pick(times) * 1000:.1f} ms" if times else "–" for pick in (statistics.median, min)]
        lines.append((name, *cells))
    return lines


def heartbeats(rounds: int) -> list[Line]:
    """CPU time of this checkout's launcher for the signs of life of many idle links; medians."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = os.path.join(root, "scripts", "bench_lib", "programs", "heartbeats.py")
    lines: list[Line] = []
    for links in (100, 1000):
        argv = [sys.executable, program, str(links), "0.5", "10"]
        found = [
            float(subprocess.run(argv, env={"PYTHONPATH": root}, capture_output=True, timeout=60, check=True).stdout)
            for _ in range(rounds)
        ]
        spent = statistics.median(found)
        lines.append((str(links), f"{spent * 1000:.1f} ms", f"{spent / 5:.2%}"))
    return lines


def streams(python: str, rounds: int, quick: bool) -> list[Line]:
    """MB/s of large writes, print() calls per second, and when the first of 20 slow lines was seen."""
    size, count = (64 << 20, 100_000) if quick else (256 << 20, 500_000)
    kinds = {"pipe": ("pipe", False), "pseudo-terminal, raw": ("pty", False), "pipe, PYTHONUNBUFFERED": ("pipe", True)}
    bulk: dict[str, list[float]] = {name: [] for name in kinds}
    lines: dict[str, list[float]] = {name: [] for name in kinds}
    first: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (kind, unbuffered) in kinds.items():
            bulk[name].append(size / 1e6 / drain([python, "-c", BULK.format(size)], kind, unbuffered)[0])
            lines[name].append(count / drain([python, "-c", LINES.format(count)], kind, unbuffered)[0])
            first[name].append(drain([python, "-c", SLOW], kind, unbuffered)[1])
    middle = statistics.median
    return [
        (name, f"{middle(bulk[name]):.0f} MB/s", f"{middle(lines[name]):,.0f} lines/s", f"{middle(first[name]):.2f} s")
        for name in kinds
    ]


def drain(argv: Sequence[str], kind: str, unbuffered: bool) -> tuple[float, float]:
    """Read all that `argv` writes; seconds from first to last byte, and from the start to the first byte."""
    ours, child = os.openpty() if kind == "pty" else os.pipe()
    if kind == "pty":
        mode = termios.tcgetattr(child)
        mode[0] = mode[1] = mode[3] = 0
        termios.tcsetattr(child, termios.TCSANOW, mode)
    environ = clean_environ()
    if unbuffered:
        environ["PYTHONUNBUFFERED"] = "1"
    begin = time.perf_counter()
    pid = os.posix_spawn(argv[0], list(argv), environ, file_actions=[(os.POSIX_SPAWN_DUP2, child, 1)])
    os.close(child)
    first = 0.0
    try:
        while os.read(ours, 1 << 18):
            first = first or time.perf_counter()
    except OSError:  # EIO: how a pseudo-terminal ends
        pass
    last = time.perf_counter()
    os.close(ours)
    if not ends(pid, 20):
        sys.exit(f"{argv[0]} closed its output but did not end")
    os.waitpid(pid, 0)
    return last - first, first - begin
