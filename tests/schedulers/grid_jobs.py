"""Jobs of a real Grid Engine: submitted, waited for, and what they have printed."""

from __future__ import annotations

import sys
from pathlib import Path

from batch_systems import BatchSystem, Ended, wait_until

NEEDED = ("sge_qmaster", "sge_execd", "qrsh")
LAUNCH = f"{sys.executable} -m mslaunch"


class GridJob:
    """A job whose script is `text`, from the directory for work; it ends with the code of its script."""

    def __init__(self, grid: BatchSystem, text: str, *words: str, pe: str = "mpi 7", name: str = "job") -> None:
        """`words`: options of qsub."""
        self._grid = grid
        self._name = name
        grid.file(f"{name}.sh", f"#!/bin/sh\n{text}\n").chmod(0o755)
        script = grid.file(
            f"{name}.submit",
            f"#!/bin/sh\nexport MARK_OF_TEST={grid.work}\ntrap : USR2\n./{name}.sh\necho $? > {name}.code\n",
        )
        asked = ["-terse", "-cwd", "-V", "-N", name, "-o", f"{name}.out", "-e", f"{name}.err", "-pe", *pe.split()]
        done = grid.run("qsub", *asked, *words, script)
        assert done.code == 0, done.err
        self.number = done.out.strip().partition(".")[0]

    @property
    def said(self) -> str:
        """Its standard error."""
        return self._read("err")

    @property
    def out(self) -> str:
        return self._read("out")

    def ended(self) -> Ended:
        """How its script ended; waits for that."""
        wait_until(lambda: self._read("code").endswith("\n"), lambda: self.said or "no word")
        return Ended(int(self._read("code")), self.out, self.said)

    def delete(self) -> None:
        """Call qdel."""
        self._grid.run("qdel", self.number)

    def gone(self) -> bool:
        """Whether Grid Engine does not know it any more, and no host has a process of it."""
        known = self._grid.run("qstat", "-j", self.number).code == 0
        return not known and not self._grid.alive(f"MARK_OF_TEST={self._grid.work}")

    def _read(self, end: str) -> str:
        path = Path(self._grid.work) / f"{self._name}.{end}"
        return path.read_text() if path.exists() else ""


def job(grid: BatchSystem, text: str, *words: str, pe: str = "mpi 7") -> Ended:
    """The same, to its end."""
    return GridJob(grid, text, *words, pe=pe).ended()
