"""DeepSpeed's own launcher, the real one, through our shims: `deepspeed --launcher openmpi`, `mpich` and `impi`.

MSLAUNCH_TEST_TRAINERS_PYTHON names a Python with another version than that of tests/requirements/trainers.txt.  What
DeepSpeed itself makes of our ranks is in test_trainers.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import Cluster, Job
from framework_jobs import END, SECONDS, with_hosts, with_trainers
from launching import free_port

DEEPSPEED, pytestmark = with_trainers("MSLAUNCH_TEST_TRAINERS_PYTHON")
#: its --launcher -> the shims that it calls: the mpirun of MPICH and of Intel MPI is hydra
SHIMS = {"openmpi": ("mpirun", "ompi_info"), "mpich": ("mpirun=hydra",), "impi": ("mpirun=hydra",)}
PROGRAM = (
    """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
rank, size, local = dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"]
print(f"rank {rank} of {size}, {local} here: {total.item():g}", flush=True)
dist.destroy_process_group()
"""
    + END
)


def line(launcher: str, hosts: str, place: Path) -> list[object]:
    """The command, in a directory with a hostfile, the program and the shims."""
    (place / "hosts").write_text(hosts)
    (place / "program.py").write_text(PROGRAM)
    install = [sys.executable, "-m", "mslaunch", "--install-shims", place / "shims", *SHIMS[launcher]]
    subprocess.run(install, check=True, timeout=SECONDS)
    return [DEEPSPEED, "-m", "deepspeed.launcher.runner", "--launcher", launcher, "--hostfile", "hosts"]


def ranks(text: str) -> list[str]:
    """Without what DeepSpeed says."""
    return sorted(said for said in text.splitlines() if said.startswith("rank "))


def expected(*local_ranks: int) -> list[str]:
    size = len(local_ranks)
    return [f"rank {rank} of {size}, {local} here: {sum(range(size))}" for rank, local in enumerate(local_ranks)]


@pytest.mark.parametrize("launcher", SHIMS)
def test_its_launcher_takes_our_shims(launcher: str, tmp_path: Path) -> None:
    """PATH has nothing else: no ompi_info of an Open MPI."""
    words = line(launcher, "localhost slots=2\n", tmp_path)
    words += ["--force_multi", "--no_ssh_check", "--master_addr", "127.0.0.1", "--master_port", free_port()]
    done = subprocess.run(
        [*map(str, words), "program.py"], cwd=tmp_path, env={**os.environ, "PATH": str(tmp_path / "shims")},
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, ranks(done.stdout)) == (0, expected(0, 1)), done.stdout + done.stderr


@with_hosts
@pytest.mark.parametrize("launcher", ["openmpi", "impi"])
def test_its_launcher_takes_our_shims_on_two_hosts(launcher: str, two_hosts: Cluster, tmp_path: Path) -> None:
    """It asks the first host for its address, by ssh.  mpich's words for hosts are impi's, and take 10 s longer."""
    words = line(launcher, "n01 slots=1\nn02 slots=1\n", tmp_path)
    environ = {"PATH": f"{tmp_path / 'shims'}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    job = Job(two_hosts.command("exec", "head", *words, "program.py"), cwd=tmp_path, env=environ)
    try:
        done = job.end(SECONDS)
    finally:
        job.destroy()
    assert (done.code, ranks(done.out.decode())) == (0, expected(0, 0)), done.out.decode() + done.err
