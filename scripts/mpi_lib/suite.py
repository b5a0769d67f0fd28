"""One run of mpi4py's tests under one launcher, and how each test ended on each rank.

Tests are compared by name, not only by their counts: two errors, one in place of the other, would leave the counts
equal.
"""

from __future__ import annotations

import collections
import glob
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench_lib.timing import adopting, sweep

from mpi_lib import MpiError
from mpi_lib.libraries import environment

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank.py")
OUTCOMES = ("ok", "failed", "error", "skipped")  #: the worse of several of one test counts: its subtests'
_WORSE = {"skipped": 0, "ok": 0, "failed": 1, "error": 2}

#: what a quick run takes: start, end, and what goes through a launcher.  Of the tests that spawn, a quarter: Open MPI
#: takes a second for each, and each of the others is like one of these, with more children.
SUBSET_MODULES = ("comm", "dynproc", "environ", "group", "info", "session", "spawn", "util_sync", "win")
SUBSET_SPAWN = ("test_spawn.TestSpawnSingleSelf.", "test_spawn.TestSpawnMultipleWorld.")
PATIENCE = 1800.0


class Run(NamedTuple):
    """How it went; `ranks` has for each rank the outcome of each test, and `last` the test that it began last."""

    code: int
    seconds: float
    hung: bool
    ranks: tuple[Mapping[str, str], ...]
    last: tuple[str, ...]  # of the ranks that have not come to the end of the suite: "rank 1: test_x.Y.testZ"
    said: str  # the end of what it printed

    def counts(self, rank: int) -> tuple[int, ...]:
        """For OUTCOMES."""
        found = collections.Counter(self.ranks[rank].values())
        return tuple(found[word] for word in OUTCOMES)


def run_suite(argv: Sequence[str], directory: str, timeout: float) -> Run:
    """Run a command whose ranks write into `directory`; after `timeout` seconds it is ended."""
    begin = time.monotonic()
    hung = False
    with adopting(), tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
            cwd=directory,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        code = process.wait()
        sweep()
        seconds = time.monotonic() - begin
        out.seek(0, os.SEEK_END)
        out.seek(max(0, out.tell() - 20000))
        said = out.read().decode("utf-8", "replace")
    return Run(code, seconds, hung, *_read_all(directory), said)


def _read_all(directory: str) -> tuple[tuple[Mapping[str, str], ...], tuple[str, ...]]:
    ranks, last = [], []
    for number in range(len(glob.glob(os.path.join(directory, "rank-*")))):
        path = os.path.join(directory, f"rank-{number}")
        if not os.path.exists(path):
            break
        with open(path, encoding="utf-8") as file:
            outcomes, where = _read(file.read())
        ranks.append(outcomes)
        if where:
            last.append(f"rank {number}: {where}")
    return tuple(ranks), tuple(last)


def _read(text: str) -> tuple[dict[str, str], str]:
    """The outcome of each test, and the test that runs; "" at the end."""
    found: dict[str, str] = {}
    where = "before the first test"
    for line in text.splitlines():
        word, _, test = line.partition(" ")
        if word == "over":
            where = ""
        elif word == "began":
            where = test
        elif test not in found or _WORSE[word] > _WORSE[found[test]]:
            found[test] = word
    return found, where


def differences(native: Run, other: Run) -> list[str]:
    """In what they differ, a line each; nothing if the launcher made no difference.

    What the native run did not come to, since it hung or crashed before, must go well here.
    """
    found = []
    if len(native.ranks) != len(other.ranks):
        found.append(f"{len(native.ranks)} ranks natively, {len(other.ranks)} here")
    if not native.last and (native.code == 0) != (other.code == 0):
        found.append(f"exit code {native.code} natively, {other.code} here")
    for rank, (theirs, ours) in enumerate(zip(native.ranks, other.ranks)):
        for test in sorted({*theirs, *ours}):
            before, now = theirs.get(test, "not run"), ours.get(test, "not run")
            unknown = before == "not run" and native.last and now in ("ok", "skipped")
            if before != now and not unknown:
                found.append(f"rank {rank}: {test}: {before} natively, {now} here")
    return found + [f"not at its end: {where}" for where in other.last]


def fetch(python: str, cache: str) -> str:
    """The path of test/main.py of mpi4py's sources, in the version of `python`'s wheel.  Raises MpiError."""
    asked = [python, "-c", "import importlib.metadata as m; print(m.version('mpi4py'))"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise MpiError(f"{python} has no mpi4py: {done.stderr.strip()[-300:]}")
    name = f"mpi4py-{done.stdout.strip()}"
    main = os.path.join(cache, name, "test", "main.py")
    if not os.path.exists(main):
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as place:
            _download(python, name.replace("-", "=="), place)
            (archive,) = glob.glob(os.path.join(place, "*.tar.gz"))
            with tarfile.open(archive) as file:
                file.extractall(place, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            os.rename(os.path.join(place, name), os.path.join(cache, name))
    return main


def _download(python: str, what: str, place: str) -> None:
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "-q", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-binary", "mpi4py", "-d", place, what], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise MpiError(f"pip could not download the sources of {what}: {done.stderr.strip()[-300:]}")


def program(python: str, main: str, directory: str, words: Sequence[str]) -> list[str]:
    """The command line of one rank; `words` choose tests, none: all."""
    return [python, RANK, directory, main, "-q", *words]


def subset() -> list[str]:
    """The words that choose what a quick run takes."""
    names = [*(f"test_{name}." for name in SUBSET_MODULES if name != "spawn"), *SUBSET_SPAWN]
    return ["-i", f"^test_({'|'.join(SUBSET_MODULES)})[.]py$", *(word for name in names for word in ("-k", name))]


def modules(patterns: Sequence[str]) -> list[str]:
    """The words that choose modules whose file names match one of these regular expressions."""
    return [word for pattern in patterns for word in ("-i", pattern)]
