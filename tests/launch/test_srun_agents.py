"""Agents that srun starts, by a stand-in for srun that needs no Slurm; on the real one: tests/schedulers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from launching import PROGRAMS

from mslaunch.transport.srun import _reason

NAMES = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NNODES", "SLURM_GPUS", "SLURM_PROCID", "SLURM_NTASKS", "HOSTNAME",
         "SLURM_STEP_ID", "SRUN_DEBUG", "SSH_CONNECTION")  # fmt: skip
SHOW = f"""
import os  # one write a line, which others' lines cannot part
seen = [os.environ.get(name, "-") for name in {(*NAMES, "SLURMD_NODENAME")}]
os.write(1, (" ".join(seen) + "\\n").encode())
"""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """What salloc sets on a login node, and what its user has there; `srun` in PATH is the stand-in."""
    commands = tmp_path / "bin"
    commands.mkdir()
    srun = commands / "srun"
    srun.write_text(f"#!{sys.executable} -S\n" + (PROGRAMS / "srun").read_text())
    srun.chmod(0o755)
    granted = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "2,1(x2)"}
    options = {
        "SLURM_NNODES": "3",
        "SLURM_NTASKS": "4",
        "SLURM_GPUS": "8",
        "SRUN_CPUS_PER_TASK": "9",
        "SLURM_BCAST": "/x",
    }
    login = {"SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22", "HOSTNAME": "login", "STAND_IN_LOG": str(tmp_path / "sruns")}
    return {**granted, **options, **login, "PATH": f"{commands}:{os.environ['PATH']}"}


def sruns(directory: Path) -> list[str]:
    """The options of each srun."""
    return (directory / "sruns").read_text().splitlines()


def test_one_srun_starts_all_agents_and_ranks_see_the_job_and_not_the_step(run, job, tmp_path) -> None:
    ended = run(["--agent-python", sys.executable, sys.executable, "-S", "-c", SHOW], env=job)
    assert (ended.code, ended.err) == (0, "")
    seen = "7 n[1-3] 3 8 - - - - - -"
    assert ended.lines == [f"{seen} {node}" for node in ("n1", "n1", "n2", "n3")]
    assert len(sruns(tmp_path)) == 1


def test_agents_run_sources_where_the_launcher_has_compiled_nothing(run, job, tmp_path) -> None:
    uncompiled = {"PYTHONPYCACHEPREFIX": str(tmp_path / "empty"), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = run(["--agent-python", sys.executable, "echo", "here"], env={**job, **uncompiled})
    assert (ended.code, ended.err, ended.lines) == (0, "", ["here"] * 4)


def test_what_the_user_says_of_a_variable_of_the_job_counts(run, job) -> None:
    words = ["-x", "SLURM_NNODES=1", "--agent-python", sys.executable, sys.executable, "-S", "-c", SHOW]
    ended = run(words, env=job)
    assert [line.split()[2] for line in ended.lines] == ["1"] * 4, ended


def test_an_agent_that_cannot_call_back_gets_an_srun_of_its_own(run, job, tmp_path) -> None:
    """Its output is a byte pipe: nothing is added or lost."""
    job |= {"STAND_IN": "wrong-port", "STAND_IN_NODE": "n2"}
    ended = run(["--agent-python", sys.executable, "head", "-c", "300000", "/dev/zero"], env=job)
    assert (ended.code, ended.out) == (0, bytes(4 * 300_000))
    assert "n2: its agent cannot call back (127.0.0.1 port " in ended.err
    assert "Connection refused), so it gets an srun of its own" in ended.err
    assert ["--unbuffered" in line for line in sruns(tmp_path)] == [False, True]
    assert "--nodelist=n2 " in sruns(tmp_path)[1]


def test_a_node_that_is_down_is_named(run, job, tmp_path) -> None:
    job |= {"STAND_IN": "down", "STAND_IN_NODE": "n3"}
    ended = run(["--agent-python", sys.executable, "touch", "started"], env=job)
    assert ended.code != 0
    assert "Requested node n3 is down" in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "started").exists()


def test_without_srun_the_way_out_is_named(run, job, tmp_path) -> None:
    (tmp_path / "bin" / "srun").unlink()
    job["PATH"] = str(tmp_path / "bin")
    ended = run(["touch", "started"], env=job)
    assert ended.code == 127
    assert "srun cannot be run: No such file or directory" in ended.err
    assert "--resource-manager none" in ended.err
    assert not (tmp_path / "started").exists()


def test_a_program_that_no_node_has_is_named() -> None:
    """By each node's own slurmstepd, where its lines say whose they are."""
    said = b"""slurmstepd: error: execve(): python9: No such file or directory
slurmstepd-n2: error: execve(): python9: Permission denied
srun: error: n1: task 0: Exited with exit code 2
srun: error: n2: task 1: Exited with exit code 13
"""
    left = "srun: error: n1: task 0: Exited with exit code 2"
    assert _reason("n1", said) == f"{left}; slurmstepd: error: execve(): python9: No such file or directory"
    assert _reason("n2", said).endswith("; slurmstepd-n2: error: execve(): python9: Permission denied")
    assert _reason("n3", said) == "srun: error: n2: task 1: Exited with exit code 13"
    assert _reason("n3", b"") == ""
