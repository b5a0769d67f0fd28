"""The real Accelerate, on CPUs: its own detection in our ranks, and its own launcher through our mpirun.

MSLAUNCH_TEST_ACCELERATE_PYTHON names a Python with another version than that of tests/requirements/trainers.txt.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from clusters import Cluster
from framework_jobs import END, SECONDS, launch, launch_from_head, with_hosts, with_trainers

ACCELERATE, pytestmark = with_trainers("MSLAUNCH_TEST_ACCELERATE_PYTHON")
PROGRAM = (
    """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import torch
from accelerate import Accelerator

one = Accelerator(cpu=True)
total = one.gather(torch.tensor([float(one.process_index)])).sum().item()
print(f"process {one.process_index} of {one.num_processes}, {one.local_process_index} here: {total:g}", flush=True)
torch.distributed.destroy_process_group()
"""
    + END
)


def expected(*local_ranks: int) -> list[str]:
    size = len(local_ranks)
    return [f"process {rank} of {size}, {local} here: {sum(range(size))}" for rank, local in enumerate(local_ranks)]


def test_ranks_of_one_host(tmp_path: Path) -> None:
    done = launch("-n", 2, ACCELERATE, "-c", PROGRAM, directory=tmp_path)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected(0, 1)), done.stderr


@with_hosts
def test_ranks_of_two_hosts(two_hosts: Cluster, tmp_path: Path) -> None:
    done = launch_from_head(two_hosts, "-H", "n01:2,n02:1", ACCELERATE, "-c", PROGRAM, directory=tmp_path)
    assert (done.code, sorted(done.out.decode().splitlines())) == (0, expected(0, 1, 0)), done.err


def test_its_launcher_takes_our_mpirun(tmp_path: Path) -> None:
    """_get_mpirun_args and prepare_simple_launcher_cmd_env of accelerate/utils/launch.py."""
    shims = tmp_path / "shims"
    subprocess.run([sys.executable, "-m", "mslaunch", "--install-shims", shims, "mpirun"], check=True, timeout=SECONDS)
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["launch", "--cpu", "--num_machines", "1", "--num_processes", "2", "--mpirun_hostfile", "hosts"]
    command = [ACCELERATE, "-m", "accelerate.commands.accelerate_cli", *words, "program.py"]
    environ = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected(0, 1)), done.stderr
