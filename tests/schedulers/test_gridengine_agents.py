"""Agents in jobs of a real Grid Engine: bytes both ways through their links, and ranks of MPI."""

from __future__ import annotations

import os

import pytest
from batch_systems import BatchSystem, marks
from grid_jobs import LAUNCH, NEEDED, job

pytestmark = marks(*NEEDED)
SUM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
os.write(1, f"{world.rank} {world.size} {total} {MPI.Get_processor_name().split('.')[0]}\\n".encode())
"""
MPI = {name: os.environ.get(f"MSLAUNCH_TEST_{name}_PYTHON", "") for name in ("MPICH", "OPENMPI4", "OPENMPI5")}


def test_bytes_pass_both_ways_as_they_are(grid: BatchSystem) -> None:
    """Through rank 0 on another host; qrsh would hold 1 MB for ever.  Its ranks have what the others print, too."""
    text = f"""
head -c 1000000 /dev/urandom > sent
{LAUNCH} -H n03 -n 1 cat < sent > back
cmp sent back && echo same
{LAUNCH} --output-filename logs:nocopy sh -c 'head -c 500000 /dev/urandom | tee sent.$RANK'
for rank in 0 1 2 3; do cmp sent.$rank logs/*/rank.$rank/stdout && echo same; done
"""
    ended = job(grid, text, pe="mpi 4")
    assert (ended.code, ended.lines) == (0, ["same"] * 5), ended.err


@pytest.mark.parametrize("library", MPI)
def test_ranks_of_mpi_are_one_world_in_jobs_of_grid_engine(grid: BatchSystem, library: str) -> None:
    """Without a word about MPI."""
    if not os.access(MPI[library], os.X_OK):
        pytest.skip(f"MSLAUNCH_TEST_{library}_PYTHON is {MPI[library]!r}: it should name a Python that has mpi4py")
    ended = job(grid, f"{LAUNCH} {MPI[library]} {grid.file('sum.py', SUM)}", pe="mpi 6")
    hosts = ["n01", "n01", "n02", "n02", "n03", "n04"]
    assert ended.lines == [f"{rank} 6 15 {host}" for rank, host in enumerate(hosts)], ended.err
