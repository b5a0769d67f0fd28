"""How jobs of a real Slurm end: cancelled, requeued, without a node; nothing is left, and the cause is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from batch_systems import BatchSystem, marks, wait_until

pytestmark = marks("slurmctld", "slurmd", "munged")
#: says that it runs, and on SIGTERM takes half a second to save something
SAVES = """
import os, signal, time
def end(*_):
    time.sleep(0.5)
    open(f"saved{os.environ['RANK']}.{os.environ.get('SLURM_RESTART_COUNT', 0)}", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open(f"up{os.environ['RANK']}.{os.environ.get('SLURM_RESTART_COUNT', 0)}", "w").close()
time.sleep(600)
"""


def submit(slurm: BatchSystem, *words: str, before: str = "", options: str = "--grace 3") -> str:
    """A job whose four ranks save something; its number, once they run."""
    slurm.file("saves.py", SAVES)
    launch = f"{sys.executable} -m mslaunch {options} {sys.executable} saves.py"
    script = slurm.file(
        "job.sh", f"#!/bin/sh\n{before}\nexport MARK_OF_TEST={slurm.work}\n{launch}\necho the code is $?\n"
    )
    ended = slurm.run("sbatch", "--parsable", "--open-mode=append", "-N4", "-o", "out", *words, script)
    assert ended.code == 0, ended.err
    wait_until(lambda: len(list(slurm.work.glob("up?.0"))) == 4, lambda: said(slurm))
    return ended.out.strip()


def said(slurm: BatchSystem) -> str:
    out = slurm.work / "out"
    return out.read_text() if out.exists() else "no output"


def saved(slurm: BatchSystem, run: int = 0) -> list[str]:
    return sorted(path.name for path in slurm.work.glob(f"saved?.{run}"))


def wait_for_end(slurm: BatchSystem, job: str) -> None:
    wait_until(lambda: not slurm.run("squeue", "-h", "-j", job).out.strip(), lambda: said(slurm))
    wait_until(lambda: not slurm.alive(f"MARK_OF_TEST={slurm.work}"), lambda: slurm.alive("MARK_OF_TEST"))


def test_scancel_leaves_ranks_their_grace_and_nothing_behind(slurm: BatchSystem) -> None:
    job = submit(slurm)
    slurm.run("scancel", job)
    wait_for_end(slurm, job)
    assert saved(slurm) == [f"saved{rank}.0" for rank in range(4)], said(slurm)
    assert f"ended by SIGTERM: Slurm's job {job} was cancelled, preempted or is out of time" in said(slurm)


def test_the_step_of_the_agents_can_be_cancelled(slurm: BatchSystem) -> None:
    """Slurm kills them at once; the launcher names the hosts that it lost."""
    job = submit(slurm, "--ntasks-per-node=1")
    slurm.run("scancel", f"{job}.0")
    wait_for_end(slurm, job)
    assert any(f"n0{number}" in said(slurm) for number in (2, 3, 4)), said(slurm)
    assert "Traceback" not in said(slurm)


def test_a_launcher_that_is_killed_leaves_nothing(slurm: BatchSystem) -> None:
    job = submit(slurm, before="trap '' TERM", options="--grace 1")
    launchers = [
        int(name)
        for name in filter(str.isdigit, os.listdir("/proc"))
        if _is_launcher(Path(f"/proc/{name}"), str(slurm.work))
    ]
    assert len(launchers) == 1
    os.kill(launchers[0], 9)
    wait_for_end(slurm, job)


def _is_launcher(process: Path, mark: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
        shell = (
            b"job.sh" in Path(f"/proc/{parent}/cmdline").read_bytes()
            or b"slurm_script" in Path(f"/proc/{parent}/cmdline").read_bytes()
        )
        return b"mslaunch" in words and shell and mark.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_a_job_that_is_requeued_starts_anew(slurm: BatchSystem) -> None:
    job = submit(slurm, "--requeue")
    slurm.run("scontrol", "requeue", job)
    wait_until(lambda: len(saved(slurm)) == 4, lambda: said(slurm))
    slurm.run("scancel", job)


def test_the_end_of_a_host_is_named(slurm: BatchSystem) -> None:
    """The last test of this module: the host stays off."""
    job = submit(slurm, options="--grace 1 --lease 2")
    slurm.verb("kill", "n04")
    wait_until(lambda: "the code is 205" in said(slurm), lambda: said(slurm))
    slurm.run("scancel", job)
    wait_until(lambda: not slurm.alive(f"MARK_OF_TEST={slurm.work}"), lambda: slurm.alive("MARK_OF_TEST"))
    assert "n04" in said(slurm).split("mslaunch: ")[1], said(slurm)
    assert "still ending" not in said(slurm), "the agents of the other hosts have ended, though srun waits for n04's"


def test_an_allocation_that_has_ended_is_told_with_what_to_do(slurm: BatchSystem) -> None:
    """The shell below salloc outlives its job, and keeps the variables."""
    script = (
        f"scancel $SLURM_JOB_ID; while squeue -hj $SLURM_JOB_ID | grep .; do :; done; {sys.executable} -m mslaunch id"
    )
    ended = slurm.run("salloc", "--no-kill", "-N2", "sh", "-c", f"trap '' HUP TERM; {script} >told 2>&1")
    told = (slurm.work / "told").read_text()
    assert "ask for another one with salloc or sbatch" in told and "uid=" not in told, (told, ended.err)
