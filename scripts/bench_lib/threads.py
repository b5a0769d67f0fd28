"""Programs of threaded frameworks, bound and not: how long a step of training takes, and in how many threads.

docs/placement.md promises that a rank which names its framework has all cpus by default.  The time is that of the
program's own steps, of its slower rank; to import the framework is not in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench_lib import BenchError, table
from bench_lib.contenders import MPIRUN, OURS, Launcher, cached
from bench_lib.table import Row
from bench_lib.timing import Sample, adopting, clean_environ, median, ratio, show_progress, sweep

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
#: framework -> what it imports, and the variable that names a Python with it, as in tests/frameworks
FRAMEWORKS = {
    "torch": ("torch", "MSLAUNCH_TEST_TORCH_PYTHON"),
    "jax": ("jax", "MSLAUNCH_TEST_JAX_PYTHON"),
    "lightning": ("pytorch_lightning", "MSLAUNCH_TEST_LIGHTNING_PYTHON"),
    "deepspeed": ("deepspeed", "MSLAUNCH_TEST_TRAINERS_PYTHON"),
}
BY_ITSELF, BOUND, MPIRUN_FREE = "python", f"{OURS} --bind-to core", f"{MPIRUN} --bind-to none"
#: of the time of the program by itself, which has all cpus; of two ranks, of mpirun that binds nothing.  With one rank
#: mpirun is no measure: MKL takes 1 thread of 2 then (`frameworks.torch.LONE`).  What is called noise
TARGET = 1.25
HEAD = ("what", "launcher", "a step", "fastest", "threads of a rank", "ended well", "mslaunch takes", "target", "")
_SECONDS = 120.0  #: for one run
#: what would set the number of threads, or say where to run
_OF_THREADS = ("OMP_", "MKL_", "OPENBLAS_", "BLIS_", "GOMP_", "KMP_", "XLA_", "TORCH_")


class Run(NamedTuple):
    """One run; `sample.seconds` is what a step took in the slower rank."""

    sample: Sample
    threads: tuple[int, ...]  #: of each rank, sorted


def threads(launchers: Mapping[str, Launcher], rounds: int, named: Sequence[str]) -> list[Row]:
    """Rows of each framework that there is; `named` are those of the command line, NAME or NAME=PYTHON."""
    found = []
    for name, given in (_named(named) or dict.fromkeys(FRAMEWORKS, "")).items():
        module, variable = FRAMEWORKS[name]
        python = given or _python(name, variable)
        program = [python, os.path.join(PROGRAMS, f"threads_{name}.py")]
        version, error = _tried(program, module) if python else ("", "there is no Python for it")
        if error:
            todo = f"give --framework {name}=PYTHON, or {variable}"
            print(f"NOT MEASURED: {name}: {error}; {todo}", file=sys.stderr, flush=True)
            continue
        for n in (1, 2):
            what = f"{name} {version}, {n} rank{'s' * (n > 1)}"
            found += _rows(what, _by_turns(_commands(launchers, n, program), rounds, what))
    return found


def _named(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, given, path = word.partition("=")
        if name not in FRAMEWORKS or (given and not os.access(path, os.X_OK)):
            raise BenchError(f"--framework {word!r} is no NAME or NAME=PYTHON with NAME of {', '.join(FRAMEWORKS)}")
        found[name] = path and os.path.abspath(path)
    return found


def _python(name: str, variable: str) -> str:
    """One that has the framework, maybe: as the tests' variable says, or where scripts/test and Debian put it."""
    if name == "torch":
        place = shutil.which("python3", path="/usr/bin")
    else:
        place = cached("jax" if name == "jax" else "trainers", "python")
    return os.environ.get(variable) or place or ""


def _tried(program: Sequence[str], module: str) -> tuple[str, str]:
    """The version of the framework, and why its program does not run by itself; "" if it does."""
    show = f"import {module} as it; print('VERSION', it.__version__)"
    version = ""
    for words in ([program[0], "-c", show], program):
        try:
            done = subprocess.run(words, env=_environ(), capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", str(error)
        if done.returncode:
            return "", f"{' '.join(words[:2])}: {(done.stderr.strip() or 'it failed').splitlines()[-1][:200]}"
        version = next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("VERSION ")), version)
    return version, ""


def _commands(launchers: Mapping[str, Launcher], n: int, program: Sequence[str]) -> dict[str, list[str]]:
    """The contenders, ours first; no --oversubscribe, which changes the defaults of binding."""
    ours = [launchers[OURS].path, "-n", str(n)]
    found = {OURS: [*ours, *program], BOUND: [*ours, "--bind-to", "core", *program]}
    if n == 1:
        found[BY_ITSELF] = list(program)
    if MPIRUN in launchers:
        theirs = [launchers[MPIRUN].path, "--allow-run-as-root", "-n", str(n)]
        found[MPIRUN] = [*theirs, *program]
        found[MPIRUN_FREE] = [*theirs, "--bind-to", "none", *program]
    return found


def _by_turns(asked: Mapping[str, Sequence[str]], rounds: int, what: str) -> dict[str, list[Run]]:
    """As `timing.paired`: one round that does not count, then A B C, C B A …"""
    found: dict[str, list[Run]] = {name: [] for name in asked}
    with adopting():
        for turn in range(rounds + 1):
            for name, argv in list(asked.items())[:: -1 if turn % 2 else 1]:
                run = _one(argv)
                if turn:
                    found[name].append(run)
            show_progress(f"{what}: {turn} of {rounds}")
    show_progress("")
    return found


def _one(argv: Sequence[str]) -> Run:
    begin, hung = time.monotonic(), False
    process = subprocess.Popen(
        argv, env=_environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        out = process.communicate(timeout=_SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        out, hung = process.communicate()[0], True
    sweep()
    said = re.findall(r"seconds (\S+) threads (\d+)\n", out.decode("utf-8", "replace"))
    took = [float(words[0]) for words in said]
    counts = tuple(sorted(int(words[1]) for words in said))
    seconds = max(took, default=time.monotonic() - begin)
    return Run(Sample(seconds, 0.0, process.returncode or int(not took), hung, 0, -1), counts)


def _environ() -> dict[str, str]:
    """Without what would decide the number of threads in place of binding."""
    return {name: value for name, value in clean_environ().items() if not name.startswith(_OF_THREADS)}


def _rows(what: str, results: Mapping[str, Sequence[Run]]) -> list[Row]:
    samples = {name: [run.sample for run in runs] for name, runs in results.items()}
    found = []
    for name, runs in results.items():
        good = [run.sample for run in runs if run.sample.good]
        counts = sorted({number for run in runs if run.sample.good for number in run.threads})
        factor = ratio(samples[OURS], samples[name]) if name != OURS else float("nan")
        target = TARGET if name == (BY_ITSELF if BY_ITSELF in results else MPIRUN_FREE) else 0.0
        missed = bool(target) and not factor <= target  # never true of a nan
        cells = (
            f"{median(good) * 1000:.1f} ms" if good else "–",
            f"{min(sample.seconds for sample in good) * 1000:.1f} ms" if good else "–",
            " or ".join(map(str, counts)),
            f"{len(good)} of {len(runs)}",
            table.times(factor),
            *((f"≤ {target:g}", "NOT REACHED" if missed else "reached") if target else ("", "")),
        )
        found.append(Row((what, name, *cells), missed))
        what = ""
    return found
