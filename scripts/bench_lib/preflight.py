"""--check on clean hosts of scripts/cluster, beside the launch that it is made for: seconds, and false alarms."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from bench_lib import BenchError
from bench_lib.timing import clean_environ

HEAD = ("hosts", "launch of true", "--check", "least", "with findings")
HOSTS = (
    2,
    8,
    24,
)  # of 32 that all talk to each other, the neighbour table of one machine has no room (docs/cluster.md)
TARGET = 8, 3.0  #: hosts, and seconds that their check may take
CLUSTER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster")
PROGRAM = "import os, sys\nprint(os.getpid())\n"


def checks(python: str, rounds: int) -> tuple[list[Sequence[str]], bool]:
    """A line for each number of hosts, and whether the target was missed, or a clean host was blamed."""
    lines: list[Sequence[str]] = []
    missed = False
    for hosts in HOSTS:
        with tempfile.TemporaryDirectory(prefix="mslaunch-check-") as place:
            launches, found, blamed = _of_cluster(python, hosts, rounds, place)
        middle = statistics.median(found)
        missed = missed or blamed > 0 or (hosts == TARGET[0] and middle > TARGET[1])
        cells = (f"{statistics.median(launches):.2f} s", f"{middle:.2f} s", f"{min(found):.2f} s")
        lines.append((str(hosts), *cells, f"{blamed} of {len(found)}"))
    return lines, missed


def _of_cluster(python: str, hosts: int, rounds: int, place: str) -> tuple[list[float], list[float], int]:
    """Seconds of launches and of checks, and how many of these have found something."""
    directory, file = os.path.join(place, "c"), os.path.join(place, "hosts")
    script = os.path.join(place, "train.py")
    with open(script, "w", encoding="utf-8") as program:
        program.write(PROGRAM)
    _cluster("up", directory, str(hosts))
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(_cluster("hostfile", directory, "--slots", "2"))
        command = [sys.executable, CLUSTER, "exec", "--dir", directory, "head", python, "-m", "mslaunch"]
        launches, found, blamed = [], [], 0
        for _ in range(rounds):
            launches.append(_seconds([*command, "--hostfile", file, "true"])[0])
            seconds, code = _seconds([*command, "--check", "--hostfile", file, "python3", script])
            found.append(seconds)
            blamed += code != 0
    finally:
        _cluster("down", directory)
    return launches, found, blamed


def _seconds(argv: Sequence[str]) -> tuple[float, int]:
    began = time.monotonic()
    done = subprocess.run(
        argv, env=clean_environ(), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
    )
    if done.returncode not in (0, 3):
        raise BenchError(done.stderr.decode(errors="replace"))
    return time.monotonic() - began, done.returncode


def _cluster(verb: str, directory: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, CLUSTER, verb, "--dir", directory, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"scripts/cluster {verb}: {done.stderr.strip()}")
    return done.stdout
