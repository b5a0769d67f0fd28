"""How many bytes the ranks of an MPI program exchange in MPI_Init: what each host sends to the launcher."""

from __future__ import annotations

import os
import subprocess
import sys

from mpi_lib import MpiError, libraries
from mpi_lib.places import place_of

from bench_lib import BenchError
from bench_lib.mpi import COMPILED, compiled
from bench_lib.timing import clean_environ

HOSTS = 2
HEAD = ("MPI_Init of", "ranks, hosts", "collectives", "largest frame", "its content, for each rank")
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "gathers.py")
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def sizes(python: str = sys.executable) -> list[tuple[str, ...]]:
    """A line for each library and number of ranks, on two hosts.  Raises BenchError."""
    found = [library for name, library in libraries.find_all().items() if name in COMPILED]
    if not found:
        raise BenchError("no MPI library is here: run scripts/test once")
    command = ["env", f"PYTHONPATH={_ROOT}", python, _PROGRAM]
    lines = []
    try:
        with place_of(HOSTS) as place:
            for library in found:
                for n in (4, 16, 32):
                    words = libraries.ours(command, library, place, n, [compiled(library, "init")])
                    lines.append((library.title, f"{n}, {HOSTS}", *_measured(words, n // HOSTS)))
    except MpiError as error:
        raise BenchError(str(error)) from None
    return lines


def _measured(words: list[str], each: int) -> tuple[str, str, str]:
    done = subprocess.run(words, env=clean_environ(), capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise BenchError(f"{words[-1]} ended with {done.returncode}: {done.stderr[-300:]}")
    seen = [tuple(map(int, line.split()[1:])) for line in done.stderr.splitlines() if line.startswith("gather ")]
    if not seen:
        raise BenchError(f"{words[-1]} has exchanged nothing")
    frame, content = max(seen)
    return f"{len(seen) / HOSTS:g}", f"{frame:,} bytes", f"{content / each:,.0f} bytes"
