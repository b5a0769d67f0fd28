"""Programs by others, as Debian and PyPI package them: the same results as under their own launcher.

Only what does not depend on the clock is compared: how many checks passed, which sizes were measured.  Two libraries
differ from those of the other tests, because Debian's programs are linked to Debian's MPICH.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from stages import LIBRARIES, Late, Library

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.limit(240)]

INPUT = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
SCALAPACK = Path("/usr/share/scalapack")
SOLVERS = ("xdlu", "xdllt", "xdqr", "xdinv")


class Case(NamedTuple):
    """A program: whose it is, its command line, what of its output counts, and what it needs in its directory."""

    library: str
    command: Callable[[Library], list[str]]
    counts: Callable[[str, Path], list[str]]
    prepare: Callable[[Path], None] = lambda directory: None


# --- what counts


def checks(text, directory):
    """ScaLAPACK: "60 tests completed and passed residual checks", and its sisters."""
    return re.findall(r"\d+ tests [a-z ]+", text)


def sizes(text, directory):
    """NetPIPE: "  3:       4 bytes     20 times"; the time is another in each run."""
    return re.findall(r"\d+: +\d+ bytes +\d+ times", text)


def rows(text, directory):
    """Intel's benchmarks: name, number of processes, and the first two columns of the tables."""
    return re.findall(r"# Benchmarking \w+|# #processes = \d+|^ +\d+ +\d+(?= +\d+\.)", text, re.M)


def successes(text, directory):
    """HPC Challenge writes a file.  Its lines of CPU time are there or not, as the clock's grain has it."""
    written = (directory / "hpccoutf.txt").read_text()
    found = re.findall(r"^(Success=.*|CommWorldProcs=.*|HPL_N=.*|PTRANS_residual=.*)$", written, re.M)
    checked = re.sub(r"^CPU .*$", "", written, flags=re.M)
    return [*found, f"{len(re.findall('PASSED', checked))} passed", f"{len(re.findall('FAILED', written))} failed"]


# --- what is run


def small_hpcc(directory):
    """The example's input, for 200 unknowns on a grid of 1 × 2."""
    text = INPUT.read_text()
    for what, number in (("Ns", 200), ("Ps", 1), ("Qs", 2)):
        text, times = re.subn(rf"^[\d ]+?( +{what})$", rf"{number}\1", text, flags=re.M)
        assert times == 1, what
    (directory / "hpccinf.txt").write_text(text)
    (directory / "hpccoutf.txt").unlink(missing_ok=True)


def scalapack_data(directory):
    for path in SCALAPACK.glob("*.dat"):
        shutil.copy(path, directory)


def solver(family, name):
    def command(library):
        (path,) = glob.glob(f"/usr/lib/*/scalapack/{family}-tests/{name}")
        return [path]

    return Case({"mpich": "debian-mpich", "openmpi": "openmpi4"}[family], command, checks, scalapack_data)


def intel(library):
    """Its launcher finds libmpi for the benchmarks; they have no run path."""
    folder = Path(library.python).parent
    path = f"LD_LIBRARY_PATH={folder.parent / 'lib'}"
    words = [str(folder / "IMB-MPI1"), "PingPong", "Allreduce", "-npmin", "2", "-msglog", "4:6", "-iter", "20"]
    return ["env", path, *words]


CASES = {
    "hpcc": Case("openmpi4", lambda library: ["hpcc"], successes, small_hpcc),
    "NPmpich2": Case("debian-mpich", lambda library: ["NPmpich2", "-u", "4096", "-n", "20"], sizes),
    "NPopenmpi": Case("openmpi4", lambda library: ["NPopenmpi", "-u", "4096", "-n", "20"], sizes),
    "IMB-MPI1": Case("impi", intel, rows),
    **{f"{family} {name}": solver(family, name) for family in ("mpich", "openmpi") for name in SOLVERS},
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_its_own_launcher(name, stage, need, tmp_path):
    case = CASES[name]
    library = _library(case.library, need)
    _installed(name, need)
    found = []
    for launch in (stage.native, stage.run):
        case.prepare(tmp_path)
        ended = _patiently(launch, library, case.command(library))
        text = ended.out.decode("utf-8", "replace") + ended.err
        assert ended.code == 0, text[-2000:]
        found.append(case.counts(text, tmp_path))
    assert found[0], "nothing was counted"
    assert found[1] == found[0]


def _patiently(launch, library, command):
    """Debian's MPICH goes through UCX: between hosts with one kernel it hangs in one launch of twelve, natively too."""
    for _ in range(3 if library.name == "debian-mpich" else 0):
        try:
            return launch(library, 2, command, bound=15)
        except Late:
            continue
    return launch(library, 2, command)


def _installed(name, need):
    family, _, program = name.partition(" ")
    if program and not glob.glob(f"/usr/lib/*/scalapack/{family}-tests/{program}"):
        pytest.skip("NOT TESTED, not installed: scalapack-mpi-test")
    if not program and name != "IMB-MPI1":
        need(name)


def _library(name, need):
    if name == "debian-mpich":
        launcher = need("mpiexec.mpich")
        return Library(name, "MPICH of Debian", "", "", launcher, "", {}, {})
    if name not in LIBRARIES or not os.path.exists(LIBRARIES[name].launcher):
        pytest.skip(f"NOT TESTED, not installed: {name}")
    return LIBRARIES[name]
