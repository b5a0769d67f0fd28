"""The hydra dialect compared with Intel MPI's mpiexec.hydra, where it has words and variables of its own.

Host names do not exist, as in test_against_hydra.  Lines say how many ranks a host gets: without -ppn Intel's fills the
cores of a host, and MPICH's, whose rule is ours, gives it one.  MSLAUNCH_TEST_IMPI_PYTHON is the interpreter of a venv
with impi-rt (scripts/test installs it).
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from test_against_hydra import REACH, WHERE, call

from mslaunch.cli.hydra import parse as hydra
from mslaunch.host.files import read_text
from mslaunch.plan.displays import show_map
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.pipeline import allocate

pytestmark = [pytest.mark.slow]
MAP = "I_MPI_HYDRA_HOST_FILE=counted"


@pytest.fixture(scope="module")
def real() -> str:
    python = os.environ.get("MSLAUNCH_TEST_IMPI_PYTHON", "")
    command = os.path.join(os.path.dirname(python), "mpiexec.hydra")
    if not python or not os.path.exists(command):
        pytest.skip("NOT TESTED, not installed: Intel MPI (MSLAUNCH_TEST_IMPI_PYTHON)")
    return command


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("intel")
    for name, text in (("reach", REACH), ("where", WHERE)):
        (found / name).write_text(text)
        (found / name).chmod(0o755)
    (found / "counted").write_text("h1:2\nh2:2\n")
    (found / "plain").write_text("h1\nh2\n")
    return found


@pytest.mark.parametrize(
    "line",
    [
        "-hosts h1,h2 -ppn 1 -n 4 P",
        "-hosts h1:2,h2:2 -n 4 P",
        "-machinefile counted -n 4 P",
        "-f counted -ppn 1 -n 3 P",
        f"{MAP} -n 4 P",
        "I_MPI_HYDRA_HOST_FILE=plain I_MPI_PERHOST=1 -n 4 P",
        "I_MPI_HYDRA_HOST_FILE=plain I_MPI_PERHOST=2 -n 4 P",
        "I_MPI_HYDRA_HOST_FILE=plain I_MPI_PERHOST=1 -ppn 2 -n 4 P",
        "HYDRA_HOST_FILE=plain HYDRA_PPN=1 -n 4 P",
        f"{MAP} -hosts h3 -n 2 P",
        "-host h1 -n 1 P : -host h2 -n 2 P",
        "-hosts h1 -n 1 P : -hosts h2 -n 2 P",
        "-rmk user -hosts h1,h2 -ppn 2 -n 3 P",
    ],
)
def test_ranks_go_where_intel_mpi_puts_them(real: str, place: Path, line: str) -> None:
    words = [str(place / "where") if word == "P" else word for word in shlex.split(line)]
    env = dict(word.split("=", 1) for word in words if word.partition("=")[0].isupper() and "=" in word)
    words = [word for word in words if word.partition("=")[0] not in env]
    shown = call([real, "-bootstrap-exec", str(place / "reach"), "-print-rank-map", *words], place, **env)
    lines = shown.splitlines(keepends=True)
    theirs = "".join(row for row in lines if row[:1] == "(")
    request = hydra.parse(words, env, lambda name: read_text(os.path.join(place, name)))
    allocation = allocate(request, read_text, lambda name: False, "thishost", 2)
    jobmap = map_job(request, allocation, {})
    assert show_map(jobmap, request.apps, "ranks") == theirs + "\n"
    rows = dict(row.split() for row in lines if row[:1].isdigit())
    assert rows == {str(one.rank): jobmap.nodes[one.node].name for one in jobmap.placements}
