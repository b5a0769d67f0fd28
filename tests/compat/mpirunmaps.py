"""The real mpirun's developer's map, as records, for machines that do not exist.

mpirun 4.1 maps and binds for the machine in HWLOC_SYNTHETIC, and with --do-not-launch starts nothing and contacts no
host: other nodes are assumed to be like this one.  A call takes some 50 ms; sometimes one hangs, so it has a limit and
is repeated once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

import pytest

SECONDS = 10  #: for one call
_NODE = re.compile(r"^ Data for node: (\S+)")
_PROC = re.compile(r"^\s*Data for proc: \[\[\d+,\d+\],(\d+)\]")


class Row(NamedTuple):
    """One rank, as mpirun places it."""

    rank: int
    node: int
    bound: tuple[int, ...]  # places of its cpus; empty: not bound


class Asked(NamedTuple):
    """mpirun's answer; without rows it refused, and `refusal` is its text."""

    rows: tuple[Row, ...]
    policy: str = ""  # what it mapped by, one of LEVELS, slot or node
    binding: str = ""  # what it bound to, one of LEVELS or none
    refusal: str = ""


#: rank, node, local rank, app context, hardware threads of the locale (none: all)
Place = tuple[int, str, int, int, frozenset[int]]


def require() -> None:
    """Skips, and says so, where there is no mpirun 4.1."""
    program = shutil.which("mpirun")
    if not program:
        pytest.skip("NOT TESTED, not installed: mpirun")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=20).stdout
    if "(Open MPI) 4.1" not in version:
        pytest.skip(f"NOT TESTED, mpirun is not Open MPI 4.1: {version[:60]}")


def devel_map(machine: str, words: Sequence[str]) -> tuple[str, str]:
    """What mpirun prints for `machine` (an HWLOC_SYNTHETIC text) and these words, on stdout and on stderr."""
    command = ["mpirun", "--display-devel-map", "--do-not-launch", *words]
    given = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "HWLOC_"))}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environ = {**given, **root, "HWLOC_SYNTHETIC": machine}
    for last in (False, True):
        try:
            done = subprocess.run(
                command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False, cwd="/"
            )
        except subprocess.TimeoutExpired:
            if last:
                raise
        else:
            return done.stdout, done.stderr
    raise AssertionError


# --------------------------------------------------------------------------------------------------- where ranks go


def read_places(shown: str) -> list[Place] | None:
    """The places in a devel map, in rank order; None if it holds none, for mpirun has refused."""
    places = []
    node = ""
    for line in shown.splitlines():
        words = line.split()
        if found := _NODE.match(line):
            node = found[1]
        elif found := _PROC.match(line):
            rank = int(found[1])
        elif words[:1] == ["Pid:"]:
            local = int(words[words.index("rank:") + 1])
        elif words[:1] == ["State:"] and "App_context:" in words:
            app = int(words[-1])
        elif words[:1] == ["Locale:"]:
            places.append((rank, node, local, app, _threads(words[1])))
    return sorted(places, key=lambda place: place[0]) or None


def _threads(shown: str) -> frozenset[int]:
    """`[BB/..][../..]` to the hardware threads; NODE, which is all of them, to none."""
    letters = [letter for letter in shown if letter in "B."] if shown != "NODE" else []
    return frozenset(at for at, letter in enumerate(letters) if letter == "B")


# ------------------------------------------------------------------------------------------- what they are bound to


def ask(machine: str, words: Sequence[str], cpus: int) -> Asked:
    """mpirun's map for `machine`, of so many hardware threads, and these options."""
    return _read(*devel_map(machine, [*words, "true"]), cpus)


def _read(shown: str, said: str, cpus: int) -> Asked:
    rows: list[Row] = []
    node, rank, policy, binding = -1, -1, "", ""
    for line in shown.splitlines():
        if found := re.search(r"Mapping policy: BY([A-Z0-9]+)", line):
            policy = found[1].lower()
        elif found := re.search(r"Binding policy: ([A-Z0-9]+)", line):
            binding = found[1].lower()
        elif _NODE.match(line):
            node += 1
        elif found := _PROC.match(line):
            rank = int(found[1])
        elif "Binding:" in line:
            rows.append(Row(rank, node, _places(line.partition("Binding:")[2].strip(), cpus)))
    return Asked(tuple(sorted(rows)), policy, binding, "" if rows else " ".join(said.split()))


def _places(text: str, cpus: int) -> tuple[int, ...]:
    """`[B./..]` as places of cpus in logical order; mpirun shows all cpus as nothing."""
    if not text:
        return tuple(range(cpus))
    if text == "UNBOUND":
        return ()
    letters = [letter for letter in text if letter in "B."]
    assert len(letters) == cpus, text
    return tuple(place for place, letter in enumerate(letters) if letter == "B")
