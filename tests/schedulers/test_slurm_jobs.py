"""Whole jobs of a real Slurm: a training, an allocation in another one, lost nodes replaced, and one out of time.

Slurm looks for jobs out of time every 30 s (PERIODIC_TIMEOUT of slurmctld/controller.c), counted from its start: that
job is submitted first, and looked at last.  Two tests power a node off, which stays off for those behind them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_systems import MSLAUNCH, BatchSystem, marks, wait_until

sys.path.append(str(Path(__file__).resolve().parents[1] / "mindspore"))
from trainings import MARKS, NET, PYTHON, SECONDS, check_training

pytestmark = marks("slurmctld", "slurmd", "munged")
_LOOKS = 100.0  # seconds: three times what Slurm lets pass, for it also waits for nodes that are off
#: on SIGTERM takes half a second to save something
SAVES = """
import os, signal, time
def end(*_):
    time.sleep(0.5)
    open(f"saved{os.environ['RANK']}", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open(f"up{os.environ['RANK']}", "w").close()
time.sleep(600)
"""
#: says in which run of which job it is, of how many ranks, and where; and ends when it may
TELLS = """
import os, time
run, ranks = os.environ.get("SLURM_RESTART_COUNT", "0"), os.environ["WORLD_SIZE"]
open(f"up.{run}.{ranks}.{os.uname().nodename}", "w").close()
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def submit(slurm: BatchSystem, work: Path, request: str, words: str, program: str) -> str:
    """A job that launches the program in `work`; its number."""
    (work / "program.py").write_text(program)
    start = "exec " if program == SAVES else ""  # as docs/clusters.md says; otherwise Slurm may kill with the shell
    launch = f"{start}{' '.join(MSLAUNCH)} {words} {sys.executable} -S program.py"
    (work / "job.sh").write_text(f"#!/bin/sh\nexport MARK_OF_TEST={work}\n{launch}\necho the code is $?\n")
    options = [*request.split(), "--open-mode=append", "-D", work, "-o", "out"]
    ended = slurm.run("sbatch", "--parsable", *options, work / "job.sh")
    assert ended.code == 0, ended.err
    return ended.out.strip()


def said(work: Path) -> str:
    out = work / "out"
    return out.read_text() if out.exists() else "no output"


def left(slurm: BatchSystem, job: str) -> str:
    """The time that Slurm leaves a job; "" when it is over."""
    return slurm.run("squeue", "-h", "-j", job, "-o", "%L").out.strip()


def told(work: Path, run: int, ranks: int) -> list[str]:
    """The nodes on which ranks of `TELLS` are."""
    return sorted(path.name.rpartition(".")[2] for path in work.glob(f"up.{run}.{ranks}.*"))


def nothing_stays(slurm: BatchSystem, work: Path) -> None:
    wait_until(lambda: not slurm.alive(f"MARK_OF_TEST={work}"), lambda: slurm.alive("MARK_OF_TEST"))


@pytest.fixture(scope="module", autouse=True)
def out_of_time(four: BatchSystem, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The number of a job whose time is over, and its directory."""
    work = tmp_path_factory.mktemp("time")
    job = submit(four, work, "-N2 -w n01,n02", "--grace 3", SAVES)
    wait_until(lambda: len(list(work.glob("up?"))) == 2, lambda: said(work))
    wait_until(lambda: four.run("scontrol", "update", f"JobId={job}", "EndTime=now").code == 0, lambda: said(work))
    wait_until(lambda: left(four, job) in ("0:00", ""), lambda: left(four, job))
    yield job, work
    four.run("scancel", "-Q", job)


@pytest.mark.parametrize("net", [pytest.param(NET, marks=MARKS)])
def test_mindspore_trains_on_two_nodes(slurm: BatchSystem, net: Path) -> None:
    """The scheduler runs beside rank 0, and nobody names a host."""
    words = ["--output-filename", "log_output", "--merge-stderr-to-stdout", PYTHON, str(net)]
    script = slurm.file("job.sh", f"#!/bin/sh\n{' '.join([*MSLAUNCH, *words])}\necho the code is $?\n")
    env = {"PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}", "MS_TOPO_TIMEOUT": str(SECONDS // 2)}
    slurm.run("sbatch", "-Q", "-N2", "-n2", "-o", "out", script, env=env)
    wait_until(lambda: "the code is" in said(slurm.work), bound=SECONDS)
    assert "the code is 0" in said(slurm.work), said(slurm.work)
    logs = slurm.work / "log_output" / "1"
    for rank in range(2):
        check_training((logs / f"rank.{rank}" / "stdout").read_text(), rank, 2)
    scheduler = (logs / "scheduler" / "stdout").read_text()
    assert all(f"ip: 10.77.1.{host} is registered" in scheduler for host in (1, 2)), scheduler[-2000:]


def test_in_an_allocation_in_another_one_the_inner_one_counts(slurm: BatchSystem) -> None:
    launch = [*MSLAUNCH, "sh", "-c", "echo $RANK $(hostname) $SLURM_JOB_ID"]
    script = 'echo outer $SLURM_JOB_ID; exec "$@"'
    inner = ["salloc", "-Q", "-N2", "-n4", *launch]
    ended = slurm.run("salloc", "-Q", "-N3", "-n3", "sh", "-c", script, "sh", *inner)
    *ranks, outer = ended.lines
    assert [line.split()[0] for line in ranks] == ["0", "1", "2", "3"], ended.err
    assert len({line.split()[1] for line in ranks}) == 2
    [job] = {line.split()[2] for line in ranks}
    assert outer == f"outer {int(job) - 1}"


def test_a_job_that_lost_a_node_starts_anew_on_others(slurm: BatchSystem) -> None:
    """Slurm requeues it, and waits two minutes unless it is told otherwise."""
    job = submit(slurm, slurm.work, "--requeue -N3", "--grace 1 --lease 2", TELLS)
    wait_until(lambda: told(slurm.work, 0, 3) == ["n01", "n02", "n03"], lambda: said(slurm.work))
    slurm.verb("kill", "n03")
    slurm.run("scontrol", "update", "NodeName=n03", "State=DOWN", "Reason=dead")  # what SlurmdTimeout would do
    wait_until(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T").out.strip() == "PENDING")
    nothing_stays(slurm, slurm.work)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_until(lambda: told(slurm.work, 1, 3) == ["n01", "n02", "n04"], lambda: said(slurm.work))
    slurm.file("go", "")
    wait_until(lambda: "the code is 0" in said(slurm.work), lambda: said(slurm.work))
    assert "DUE TO NODE FAILURE" in said(slurm.work)
    causes = (f"Slurm's job {job} was cancelled, preempted or is out of time", "lost with their host")
    assert any(cause in said(slurm.work) for cause in causes), said(slurm.work)  # whichever is heard of first


def test_a_lost_node_is_left_out_of_a_restart(slurm: BatchSystem) -> None:
    """In the job, which --no-kill keeps alive."""
    submit(slurm, slurm.work, "--no-kill -N3", "--grace 1 --lease 2 --restart group --min-ranks 2", TELLS)
    wait_until(lambda: told(slurm.work, 0, 3) == ["n01", "n02", "n04"], lambda: said(slurm.work))
    slurm.verb("kill", "n04")
    wait_until(lambda: told(slurm.work, 0, 2) == ["n01", "n02"], lambda: said(slurm.work))
    slurm.file("go", "")
    wait_until(lambda: "the code is 0" in said(slurm.work), lambda: said(slurm.work))
    assert "n04 is left out, 2 ranks instead of 3" in said(slurm.work)
    nothing_stays(slurm, slurm.work)


def test_a_job_out_of_time_leaves_ranks_their_grace(four: BatchSystem, out_of_time: tuple[str, Path]) -> None:
    job, work = out_of_time
    wait_until(
        lambda: "ended by SIGTERM" in said(work),
        lambda: said(work) + four.run("scontrol", "show", "job", job).out,
        bound=_LOOKS,
    )
    nothing_stays(four, work)
    assert sorted(path.name for path in work.glob("saved?")) == ["saved0", "saved1"], said(work)
    assert "DUE TO TIME LIMIT" in said(work), "it is Slurm that says so"
    assert f"ended by SIGTERM: Slurm's job {job} was cancelled, preempted or is out of time" in said(work)
    wait_until(lambda: "JobState=TIMEOUT" in four.run("scontrol", "show", "job", job).out)
