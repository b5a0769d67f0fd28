"""One rank of `true` on each of 4 nodes of a job of a real batch system, by `scripts/slurm` and `scripts/gridengine`.

mpirun and hydra are told to start their daemons by the system's own command, which is measured as well.  The launchers
are run where users run them: on a login node below salloc, and by a batch script, on the first node of the job.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from bench_lib import BenchError, table
from bench_lib.contenders import HYDRA, MPIRUN, OURS, Launcher
from bench_lib.hosts import inner, samples, say, up
from bench_lib.table import Row
from bench_lib.timing import Sample, Spec, show_progress

NODES = 4
HOSTS = [f"n{number:02d}" for number in range(1, NODES + 1)]
TARGETS = {MPIRUN: 1.0, HYDRA: 1.5}


class System(NamedTuple):
    """A batch system, and how each launcher is used in its jobs."""

    script: str  # of scripts/
    places: dict[str, tuple[str, ...]]  # by the launcher's place: what runs a command there; OUT is a file for output
    native: str  # the system's own command
    direct: tuple[str, ...]  # how it starts one task on each node
    mpirun: tuple[str, ...]
    hydra: tuple[str, ...]


_SIZE = (f"-N{NODES}", f"-n{NODES}")
SYSTEMS = (
    System(
        "slurm",
        {
            "salloc": ("salloc", "-Q", *_SIZE),
            "sbatch": ("sbatch", "-Q", "-W", *_SIZE, "-o", "OUT", "-e", "OUT.errors"),
        },
        "srun",
        ("srun",),
        ("--mca", "ras", "slurm", "--mca", "plm", "slurm"),
        ("-bootstrap", "slurm", "-rmk", "slurm"),
    ),
    System(
        "gridengine",
        {"qsub": ("qsub", "-V", "-sync", "y", "-pe", "mpi", str(NODES), "-o", "OUT", "-e", "OUT.errors")},
        "qrsh",
        ("sh", "-c", f'for host in {" ".join(HOSTS)}; do qrsh -inherit $host "$0" & done; wait'),
        ("--mca", "ras", "gridengine", "--mca", "plm", "rsh"),  # which runs `qrsh -inherit`
        ("-bootstrap", "sge", "-rmk", "sge"),
    ),
)


def clusters(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    """Raises BenchError without root, without the system, and where a launcher does not use all nodes."""
    if os.geteuid():
        raise BenchError("the hosts of batch systems need root (scripts/cluster)")
    found = []
    for system in SYSTEMS:
        with (
            tempfile.TemporaryDirectory(prefix="mslaunch-bench-") as place,
            up(system.script, place, NODES) as directory,
        ):
            for name in system.places:
                job = _Job(system, name, directory, place)
                title = f"{NODES} nodes, in {name}"
                show_progress(title)
                results = job.measure(launchers, rounds)
                found += table.rows(title, OURS, results, TARGETS)
    return found


class _Job:
    """What is run in one place of jobs of one system."""

    def __init__(self, system: System, place: str, directory: str, files: str) -> None:
        self._system = system
        self._begin = system.places[place]
        self._directory = directory
        self._files = files

    def measure(self, launchers: Mapping[str, Launcher], rounds: int) -> dict[str, list[Sample]]:
        """After a look at whether each has a rank on each node."""
        for name, command in self._commands(launchers, "hostname").items():
            hosts = sorted(self._run(command).split())
            if hosts != HOSTS:
                raise BenchError(f"{name} does not use all {NODES} nodes of the job, but {' '.join(hosts) or 'none'}")
        return samples(self._run(inner(Spec(self._commands(launchers, "true"), rounds, 60.0), self._files)))

    def _commands(self, launchers: Mapping[str, Launcher], program: str) -> dict[str, list[str]]:
        n = ["-n", str(NODES)]
        options = {
            OURS: n,
            MPIRUN: ["--allow-run-as-root", *self._system.mpirun, *n],
            HYDRA: [*self._system.hydra, *n],
        }
        found = {name: [launchers[name].path, *words, program] for name, words in options.items() if name in launchers}
        return {**found, self._system.native: [*self._system.direct, program]}

    def _run(self, command: list[str]) -> str:
        """The standard output of a command in a job."""
        out, script = (os.path.join(self._files, name) for name in ("out", "script"))
        with open(os.open(script, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec {shlex.join(command)}\n")
        if os.path.exists(out):
            os.unlink(out)  # Grid Engine appends
        begin = [word.replace("OUT", out) for word in self._begin]
        said = say(self._system.script, self._directory, "exec", "head", *begin, script)
        if begin == list(self._begin):
            return said
        with open(out, encoding="utf-8") as file:
            return file.read()
