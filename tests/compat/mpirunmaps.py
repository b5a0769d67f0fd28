"""What the real mpirun would do: its developer's map, for machines that are not there, as records.

mpirun 4.1 maps and binds for the machine in HWLOC_SYNTHETIC, and with --do-not-launch starts nothing and calls no
host: other nodes are taken to be like this one.  A call takes some 50 ms; now and then one hangs, so it is bounded,
and asked once more.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

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


def ask(machine: str, words: Sequence[str], cpus: int) -> Asked:
    """mpirun's map for `machine` (an HWLOC_SYNTHETIC text, of so many hardware threads) and these options."""
    command = ["mpirun", *words, "--display-devel-map", "--do-not-launch", "true"]
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
            return _read(done.stdout, done.stderr, cpus)
    raise AssertionError


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
