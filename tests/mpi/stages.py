"""Where MPI programs of the tests run, and how: under mslaunch, and under the launcher of their library.

The libraries and places are those of scripts/mpi_lib, which the suite and the bench use too.  After each job all
processes of the place are checked, because an MPI rank that is left behind spins without end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS / "launch"), str(TESTS / "hosts"), str(ROOT / "scripts")]

from clusters import Cluster, cluster_of  # noqa: E402
from launching import Job, Result, environment  # noqa: E402
from mpi_lib import libraries, places  # noqa: E402
from mpi_lib.libraries import Library  # noqa: E402
from mpi_lib.places import Place  # noqa: E402

PROGRAMS = Path(__file__).resolve().parent / "programs"
BOUND = 90.0  #: seconds for a program that takes one or two; ranks spin, and there are more of them than cores
LIBRARIES = libraries.find_all()
__all__ = [
    "LIBRARIES", "PROGRAMS", "ROOT", "Cluster", "Late", "Library", "Result", "Stage", "cluster_of", "found",
    "libraries", "places",
]  # fmt: skip


def found(name: str) -> Library:
    """The library of this name, or a loud skip."""
    if name not in LIBRARIES:
        pytest.skip(f"NOT TESTED, not installed: {name} ({libraries.variable(name)})")
    return LIBRARIES[name]


class Late(AssertionError):
    """A job was not over in time."""


class Stage(NamedTuple):
    """A place, and how jobs are started in it."""

    place: Place
    directory: Path
    cluster: Cluster | None

    def run(self, library: Library, n: int, program: list[str], *options: str, bound: float = BOUND) -> Result:
        """mslaunch -n N OPTIONS PROGRAM to its end; fails if anything outlives it."""
        argv = libraries.ours([], library, self.place._replace(enter=()), n, [], {})[:-2]
        return self.launch([*argv, *options, "-n", str(n), *program], bound)

    def launch(self, words: list[str], bound: float = BOUND) -> Result:
        """The same, of a command line for mslaunch."""
        if self.cluster is None:
            job: Any = Job(words, environment(), cwd=self.directory)
        else:
            job = self.cluster.start(*words, cwd=self.directory)
        try:
            ended = job.end(bound)
        except subprocess.TimeoutExpired as late:
            raise Late(f"not over after {bound:g} s: {(late.stdout or b'')!r}") from None
        finally:
            job.destroy()
            self._clean(job)
        return Result(ended.code, ended.out, ended.err)

    def _clean(self, job: Any) -> None:
        if self.cluster is None:
            job.wait_gone()
            return
        try:
            self.cluster.wait_quiet(2)
        finally:
            for pids in self.cluster.all_processes(2).values():  # so that the next test does not fail for it
                for pid in pids:
                    os.kill(pid, 9)

    def native(self, library: Library, n: int, program: list[str], bound: float = BOUND) -> Result:
        """The same program under the library's own launcher."""
        argv = libraries.native(library, self.place, n, program)
        how: dict[str, Any] = {"env": libraries.environment(), "cwd": self.directory, "stdin": subprocess.DEVNULL}
        try:
            done = subprocess.run(argv, capture_output=True, timeout=bound, check=False, **how)
        except subprocess.TimeoutExpired:
            raise Late(f"its own launcher was not over after {bound:g} s: {argv}") from None
        return Result(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))
