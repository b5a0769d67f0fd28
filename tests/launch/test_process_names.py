"""The names of our processes, which ps and top show: agent and guard, the keeper of --events, a detached launcher."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from launching import PROGRAMS, through_rsh, wait_until

from mslaunch.jobs.job_registry import JobRegistry

#: the names of a rank and of the two processes above it
ABOVE = """\
read name < /proc/$$/comm; echo $name
read pid name state parent rest < /proc/$PPID/stat; echo $name
read pid name state parent rest < /proc/$parent/stat; echo $name
"""
EXPECTED = ["sh", "(mslaunch-agent)", "(mslaunch-guard)"]


def srun(folder: Path) -> dict[str, str]:
    """A Slurm job with one host, whose `srun` is our stand-in."""
    file = folder / "srun"
    file.write_text(f"#!{sys.executable} -S\n" + (PROGRAMS / "srun").read_text())
    file.chmod(0o755)
    granted = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1"}
    return {**granted, "STAND_IN_LOG": str(folder / "sruns"), "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("way", ["local", "rsh", "srun"])
def test_agent_and_guard_have_names_and_ranks_keep_their_own(run, tmp_path, way):
    words = {"local": [], "rsh": through_rsh("far:1"), "srun": ["--agent-python", sys.executable]}[way]
    ended = run([*words, "-n", "1", "sh", "-c", ABOVE], env=srun(tmp_path) if way == "srun" else {})
    assert (ended.code, ended.out.decode().split()) == (0, EXPECTED), ended


def test_without_proc_a_process_keeps_its_name(monkeypatch):
    """As in a chroot: a name is never worth an error."""
    from mslaunch.agent.guard import set_name

    def refuse(path: str, flags: int) -> int:
        raise FileNotFoundError(path)

    before = Path("/proc/self/comm").read_text(encoding="ascii")
    monkeypatch.setattr(os, "open", refuse)
    set_name("another")
    assert Path("/proc/self/comm").read_text(encoding="ascii") == before


def children(pid: int) -> list[str]:
    """The names of a process's children."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return sorted(Path(f"/proc/{child}/comm").read_text(encoding="ascii").strip() for child in found)


def test_the_keeper_of_events_has_a_name(start, tmp_path):
    job = start(["--events", tmp_path / "events", "-n", "1", "sh", "-c", "echo ready; exec sleep 1000"])
    job.expect(b"ready")
    wait_until(lambda: children(job.process.pid) == ["mslaunch-events", "mslaunch-guard"])
    job.process.terminate()
    job.end()


def test_a_detached_launcher_is_called_mslaunch(run, tmp_path):
    """However it was started: here by `python -m mslaunch`."""
    jobs = {"MSLAUNCH_JOBS": str(tmp_path / "jobs")}
    started = run(["--detach", "-n", "1", "sleep", "1000"], env=jobs)
    assert started.code == 0, started
    (entry,) = JobRegistry(jobs).entries()
    launcher = entry.process.pid
    assert Path(f"/proc/{launcher}/comm").read_text(encoding="ascii") == "mslaunch\n"
    assert children(launcher) == ["mslaunch-guard"]
    assert run(["--stop", "1"], env=jobs).code == 0
