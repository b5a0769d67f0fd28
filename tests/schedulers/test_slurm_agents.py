"""Agents in jobs of a real Slurm: without a way back, and ranks of MPI; all ranks see the same job."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from batch_systems import BatchSystem, marks, wait_until

pytestmark = marks("slurmctld", "slurmd", "munged")
#: a stand-in in PATH that lets the answers of the launcher's port be lost, and becomes the real srun
BLOCKING = """
import glob, os, subprocess, sys
def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""
if "--unbuffered" not in sys.argv:
    sockets = {link(path) for path in glob.glob(f"/proc/{os.getppid()}/fd/*")}
    for line in open("/proc/net/tcp6").read().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            port = str(int(words[1].rsplit(":", 1)[1], 16))
            rule = ["to", os.environ["BLOCKED"], "ipproto", "tcp", "sport", port, "blackhole"]
            subprocess.run(["ip", "rule", "add", *rule], check=True)
os.execv(os.environ["SRUN"], ["srun", *sys.argv[1:]])
"""
SUM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
os.write(1, f"{world.rank} {world.size} {total} {MPI.Get_processor_name().split('.')[0]}\\n".encode())
"""
SEEN = """
import os
names = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_CPUS_PER_NODE")
os.write(1, (" ".join(os.environ[name] for name in names) + "\\n").encode())
"""
MPI = {name: os.environ.get(f"MSLAUNCH_TEST_{name}_PYTHON", "") for name in ("MPICH", "OPENMPI4", "OPENMPI5")}


def batch_job(slurm: BatchSystem, program: str, *request: str) -> list[str]:
    """The lines that the ranks print, sorted; `sbatch --wait` would look for the end once in some seconds only."""
    launch = f"{sys.executable} -m mslaunch {program}; touch ended"
    ended = slurm.run("sbatch", "-Q", *request, "-o", "out", "--wrap", launch)
    assert ended.code == 0, ended.err
    wait_until((slurm.work / "ended").exists)
    return sorted((slurm.work / "out").read_text().splitlines())


def test_a_node_whose_packets_are_lost_gets_an_srun_of_its_own(slurm: BatchSystem) -> None:
    """Bytes pass through it as they are."""
    real = subprocess.run(["which", "srun"], capture_output=True, text=True, check=True).stdout.strip()
    commands = slurm.work / "bin"
    commands.mkdir()
    srun = slurm.file("bin/srun", f"#!{sys.executable} -S\n{BLOCKING}")
    srun.chmod(0o755)
    env = {"PATH": f"{commands}:{os.environ['PATH']}", "SRUN": real, "BLOCKED": "10.77.1.2/32"}
    script = slurm.file("bytes", "head -c 500000 /dev/urandom | tee sent.$RANK; exec hostname >&2\n")
    words = ["--output-filename", "logs:nocopy", "sh", script]
    ended = slurm.run("salloc", "-Q", "-N3", "-n3", sys.executable, "-m", "mslaunch", *words, env=env)
    assert ended.code == 0, ended.err
    assert ended.err.count("its agent cannot call back") == 1, ended.err
    assert "n02: its agent cannot call back" in ended.err
    for rank in range(3):
        [log] = slurm.work.glob(f"logs/*/rank.{rank}/stdout")
        assert log.read_bytes() == (slurm.work / f"sent.{rank}").read_bytes()


def test_a_launch_imports_no_slow_module(slurm: BatchSystem) -> None:
    """The nodes are names, for which this host's routes are looked up."""
    words = [sys.executable, "-X", "importtime", "-m", "mslaunch", "-n", "2", "true"]
    ended = slurm.run("salloc", "-Q", "-N2", *words)
    imported = {line.rpartition("|")[2].strip() for line in ended.err.splitlines() if line.startswith("import time:")}
    assert ended.code == 0 and "mslaunch.transport.srun" in imported, ended.err
    assert not imported & {"re", "enum", "typing", "json", "encodings.idna"}


def test_ranks_on_all_nodes_see_the_same_job(slurm: BatchSystem) -> None:
    """Also those of the batch script's own node, whose agent is forked."""
    script = slurm.file("seen.py", SEEN)
    lines = batch_job(slurm, f"{sys.executable} -S {script}", "-N3", "-n5")
    assert len(lines) == 5
    assert {line.split(" ", 1)[1] for line in lines} == {"n[01-03] 3 3 3,1(x2)"}


@pytest.mark.parametrize("library", MPI)
def test_ranks_of_mpi_are_one_world(slurm: BatchSystem, library: str) -> None:
    """Without a word about MPI, in a batch script."""
    if not os.access(MPI[library], os.X_OK):
        pytest.skip(f"MSLAUNCH_TEST_{library}_PYTHON is {MPI[library]!r}: it should name a Python that has mpi4py")
    lines = batch_job(slurm, f"{MPI[library]} {slurm.file('sum.py', SUM)}", "-N4", "-n6")
    hosts = ["n01", "n01", "n01", "n02", "n03", "n04"]
    assert lines == [f"{rank} 6 15 {host}" for rank, host in enumerate(hosts)]
