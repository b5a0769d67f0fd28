"""Where ranks run: on this machine, or on the hosts of a `scripts/cluster`, evenly by slots.

These hosts have one address each and share the machine's files, so paths are the same on all of them; shared memory is
each host's own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from mpi_lib import MpiError

CLUSTER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster")


class Place(NamedTuple):
    """So many hosts; `enter` are the words before a command that is to run where one launches."""

    hosts: int
    enter: tuple[str, ...] = ()
    directory: str = ""  # for hostfiles

    def each(self, n: int) -> int:
        """Ranks of `n` on the first host."""
        return -(-n // self.hosts)

    def slots(self, n: int) -> str:
        """The path of a hostfile on which `n` ranks are dealt, as mpirun reads it."""
        return self._file(n, " slots={}\n")

    def colons(self, n: int) -> str:
        """The same as hydra reads it."""
        return self._file(n, ":{}\n")

    def _file(self, n: int, ending: str) -> str:
        path = os.path.join(self.directory, f"hosts-{'slots' if '=' in ending else 'colons'}-{self.each(n)}")
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"n{number:02d}{ending.format(self.each(n))}" for number in range(1, self.hosts + 1))
        return path


HERE = Place(1)


def place_in(cluster: str, hosts: int, directory: str) -> Place:
    """The first `hosts` hosts of a cluster that is up; hostfiles are written into `directory`."""
    return Place(hosts, (*_command(cluster, "exec"), "head"), directory)


@contextlib.contextmanager
def place_of(hosts: int, *options: str) -> Iterator[Place]:
    """This machine, or a cluster of so many hosts, which is up for as long; `options` are for it.  Raises MpiError."""
    if hosts == 1:
        yield HERE
        return
    if os.geteuid():
        raise MpiError("several hosts need root (scripts/cluster)")
    with tempfile.TemporaryDirectory(prefix="mslaunch-mpi-") as directory:
        cluster = os.path.join(directory, "cluster")
        try:
            _say(cluster, "up", str(hosts), *options)
            yield place_in(cluster, hosts, directory)
        finally:
            _say(cluster, "down")


def _command(cluster: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-S", CLUSTER, "--dir", cluster, *words)


def _say(cluster: str, *words: str) -> None:
    done = subprocess.run(_command(cluster, *words), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise MpiError(f"`scripts/cluster {words[0]}` failed: {done.stderr.strip()}")
