"""Benchmark cases on this host: short jobs, and jobs that write a lot.

The writers are two ranks of 200 MB each, because a launcher that is fast for a megabyte may still hold everything in
memory.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from bench_lib import table, timing
from bench_lib.contenders import BARE, BASE, HYDRA, MPIRUN, MSRUN, OURS, TORCHRUN, Launcher, bare, local
from bench_lib.table import Row
from bench_lib.timing import Spec

MPI_LIKE = (OURS, BASE, MPIRUN, HYDRA)
FRAMEWORKS = (OURS, BASE, TORCHRUN, MSRUN)
#: by the number of ranks of `true`; Open MPI 4.1.4's mpirun hangs too often with 512
TARGETS = {1: {}, 4: {MPIRUN: 0.65, BARE: 2.8}, 64: {MPIRUN: 0.6, HYDRA: 1.6}, 512: {HYDRA: 0.95}}
TEXT_TARGET = 1.5  #: of --help and --version, against a bare interpreter
TORCHRUN_TARGET = 0.5
OUTPUT_TARGET = 0.3
FOLD = "mslaunch --fold"
FOLD_TARGETS = {(64, 1000): {OURS: 1.1}, (8, 20_000): {}}  #: of the time without, by ranks and lines of each
EQUAL = """\
import sys
lines = [f"epoch 1 step {number}: loss 0.5, 12.3 samples a second\\n" for number in range(int(sys.argv[1]))]
sys.stdout.write("".join(lines))
"""
WRITER = """\
import os, sys
block = (b"x" * 99 + b"\\n") * 655
left = int(sys.argv[1])
while left > 0:
    left -= os.write(1, block[:left])
"""


def commands(
    launchers: Mapping[str, Launcher], names: Sequence[str], n: int, program: Sequence[str]
) -> dict[str, list[str]]:
    return {name: local(launchers[name], n, program) for name in names if name in launchers}


def launch(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    found = []
    yardstick = {} if BASE in launchers else bare(launchers[OURS])
    for n, targets in TARGETS.items():
        names = [name for name in MPI_LIKE if n <= 64 or name != MPIRUN]
        asked = {**commands(launchers, names, n, ["true"]), **(yardstick if n <= 4 else {})}
        spec = Spec(asked, rounds if n <= 64 else max(2, rounds // 3), 5.0 if n <= 64 else 20.0)
        found += table.rows(f"launch {n} × true", OURS, timing.paired(spec, f"{n} × true"), targets)
    for option in ("--help", "--version"):
        asked = {name: [launchers[name].path, option] for name in (OURS, BASE) if name in launchers}
        spec = Spec({**asked, **yardstick}, rounds, 5.0)
        found += table.rows(option, OURS, timing.paired(spec, option), {BARE: TEXT_TARGET})
    if {BASE, TORCHRUN, MSRUN} & set(launchers):
        found += _frameworks(launchers, max(2, rounds // 5))
    return found


def _frameworks(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    with open("empty.py", "w", encoding="ascii"):
        pass
    asked = {name: local(launchers[name], 4, ["empty.py"]) for name in FRAMEWORKS if name in launchers}
    for name in {OURS, BASE} & set(asked):
        asked[name] = local(launchers[name], 4, [sys.executable, "empty.py"])
    results = timing.paired(Spec(asked, rounds, 60.0), "4 × an empty Python program")
    return table.rows("launch 4 × an empty Python program", OURS, results, {TORCHRUN: TORCHRUN_TARGET})


def output(launchers: Mapping[str, Launcher], rounds: int, total: int) -> list[Row]:
    """`total` bytes from two ranks, by Python and by C, to /dev/null and through a pipe."""
    programs = {
        "Python": [sys.executable, "-c", WRITER, str(total // 2)],
        "head -c": ["head", "-c", str(total // 2), "/dev/zero"],
    }
    found = []
    for writer, program in programs.items():
        for sink in ("null", "pipe"):
            what = f"{total // 1000000} MB of {writer} to {'/dev/null' if sink == 'null' else 'a pipe'}"
            asked = commands(launchers, MPI_LIKE, 2, program)
            spec = Spec(asked, rounds, 60.0, sink, total if sink == "pipe" else -1, tuple(program))
            found += table.rows(what, OURS, timing.paired(spec, what), {MPIRUN: OUTPUT_TARGET})
    return found


def folded(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    """Equal lines of many ranks, shown once and shown as they come."""
    found = []
    for (ranks, lines), targets in FOLD_TARGETS.items():
        for sink in ("null", "pipe"):
            what = f"{ranks} × {lines} equal lines to {'/dev/null' if sink == 'null' else 'a pipe'}"
            words = local(launchers[OURS], ranks, [sys.executable, "-S", "-c", EQUAL, str(lines)])
            spec = Spec({FOLD: [words[0], "--fold", *words[1:]], OURS: words}, rounds, 60.0, sink)
            found += table.rows(what, FOLD, timing.paired(spec, what), targets)
    return found
