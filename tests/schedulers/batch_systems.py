"""A real batch system on the hosts of `scripts/cluster`, and launches in its jobs, with bounded waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOUND = 40.0  #: seconds for anything that should take one; the machine may be busy
MSLAUNCH = (sys.executable, "-m", "mslaunch")
SBIN = "/usr/sbin:/usr/local/sbin"


def marks(*programs: str) -> list[pytest.MarkDecorator]:
    """Of tests that need a batch system."""
    found = all(shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SBIN}") for name in programs)
    return [
        pytest.mark.root,
        pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
        pytest.mark.skipif(not found, reason=f"NOT TESTED, not installed: {', '.join(programs)} (scripts/test)"),
    ]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Its output, sorted: ranks print in any order."""
        return sorted(self.out.splitlines())


class BatchSystem:
    """One that is up; `script` is that of scripts/."""

    def __init__(self, script: str, directory: Path, work: Path) -> None:
        self._script = ROOT / "scripts" / script
        self._directory = directory
        self.work = work  # seen by all hosts, and empty before each test

    def argv(self, verb: str, *words: object) -> list[str]:
        return [sys.executable, str(self._script), verb, "--dir", str(self._directory), *map(str, words)]

    def verb(self, verb: str, *words: object) -> str:
        done = subprocess.run(self.argv(verb, *words), capture_output=True, text=True, timeout=3 * BOUND, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *words: object, where: str = "head", env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """A command there, with the environment of a user who has set nothing."""
        kept = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", **(env or {})}
        return subprocess.Popen(
            self.argv("exec", where, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
            env=kept,
        )

    def run(self, *words: object, where: str = "head", env: dict[str, str] | None = None) -> Ended:
        """The same, to its end."""
        with self.start(*words, where=where, env=env) as process:
            try:
                out, err = process.communicate(timeout=BOUND)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Ended(process.returncode, out, err)

    def elsewhere(self) -> BatchSystem:
        """The same system, with an empty directory for work."""
        return BatchSystem(self._script.name, self._directory, Path(tempfile.mkdtemp(dir=self.work.parent)))

    def file(self, name: str, text: str) -> Path:
        path = self.work / name
        path.write_text(text)
        return path

    def alive(self, mark: str) -> list[str]:
        """The command lines of processes of this machine that have the word in their environment."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if f"{mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(
                        Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    )
            except OSError:  # it has just ended
                continue
        return [words for words in found if words]  # a zombie has none


def wait_until(
    true: Callable[[], object], tell: Callable[[], object] = lambda: "it never was", bound: float = BOUND
) -> None:
    """Poll what has no event to wait for; fails after `bound` seconds."""
    deadline = time.monotonic() + bound
    while not true():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.05)


@contextmanager
def up(script: str, hosts: int, directory: Path, *words: str) -> Iterator[BatchSystem]:
    """A batch system on so many hosts; `words`: options of `up`."""
    work = directory / "work"
    work.mkdir()
    system = BatchSystem(script, directory / "c", work)
    system.verb("up", hosts, *words)
    try:
        yield system
    finally:
        system.verb("down")
