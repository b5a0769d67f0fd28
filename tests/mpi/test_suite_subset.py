"""A part of mpi4py's own test-suite, with two ranks: each test ends under mslaunch as under the library's own launcher.

All of it, with other numbers of ranks, is what `scripts/mpi4py-suite` runs on demand: docs/mpi-suite.md.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from stages import ROOT, found, libraries

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.limit(280)]


@pytest.mark.parametrize("hosts", [1, pytest.param(2, marks=pytest.mark.root)])
@pytest.mark.parametrize("name", libraries.NAMES)
def test_its_own_tests_end_as_natively(name, hosts, request):
    found(name)
    if hosts > 1:
        request.getfixturevalue("pair")  # or the reason why there are no hosts
    words = ["--subset", "--library", name, "--hosts", str(hosts), "--ranks", "2", "--timeout", "60", "--verbose"]
    if (name, hosts) == ("openmpi5", 2):  # its own mpirun hangs in MPI_Comm_spawn_multiple there
        words += ["--launcher", "mslaunch"]
    command = [sys.executable, str(ROOT / "scripts" / "mpi4py-suite"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=270, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
