"""Launches in jobs of a real Grid Engine: which ranks run where, what they see, and what is refused."""

from __future__ import annotations

import sys

from batch_systems import BatchSystem, marks, wait_until
from grid_jobs import LAUNCH, NEEDED, GridJob, job

pytestmark = marks(*NEEDED)
WHERE = f"{LAUNCH} WORDS sh -c 'echo $RANK $(hostname)'"
SEEN = """
import os
own = [name for name in os.environ if name.startswith("QRSH_")]
seen = [os.environ.get(name) for name in ("NSLOTS", "NHOSTS", "JOB_NAME", "EXPORTED", "HOSTNAME")]
home, path = os.environ["HOME"], os.environ["PATH"]
os.write(1, f"{os.uname().nodename} {seen} {own} {os.path.basename(home)} {'/tmp.n01/' in path}\\n".encode())
"""


def placed(*counts: int) -> list[str]:
    """What `WHERE` prints for so many ranks on each host."""
    hosts = [f"n{number:02d}" for number, count in enumerate(counts, 1) for _ in range(count)]
    return [f"{rank} {host}" for rank, host in enumerate(hosts)]


def test_a_job_needs_no_word_about_hosts(grid: BatchSystem) -> None:
    """Slots are those granted; the command line chooses among them; launches follow each other at once."""
    words = ["", "-n 3", "-n 4 --map-by node", "-H n02,n04:1", "-H ^n01"]
    ended = job(grid, "\n".join(f"echo .\n{WHERE.replace('WORDS', one)} | sort" for one in words))
    parts = [part.splitlines() for part in ended.out.split(".\n")[1:]]
    assert parts == [
        placed(2, 2, 2, 1),
        placed(2, 1),
        placed(1, 1, 1, 1),
        ["0 n02", "1 n04"],
        ["0 n02", "1 n02", "2 n03", "3 n03", "4 n04"],
    ], ended.err
    assert ended.err == ""


def test_a_host_in_two_queues_has_the_sum_of_their_slots(grid: BatchSystem) -> None:
    text = f"grep -c ^n01 $PE_HOSTFILE\n{WHERE.replace('WORDS', '')}"
    ended = job(grid, text, pe="wide 5")
    assert ended.out.splitlines()[0] == "2", ended.err
    assert ended.lines == sorted(["2", *placed(3, 2)]), ended.err


def test_without_tight_integration_ssh_starts_the_agents(grid: BatchSystem) -> None:
    ended = job(grid, WHERE.replace("WORDS", ""), pe="loose 3")
    assert (ended.code, ended.lines) == (0, placed(1, 1, 1)), ended.err
    said = "n02: Grid Engine accepts no task of this job there, so its agent is started by SSH"
    assert said in ended.err


def test_ranks_on_all_hosts_see_the_same_job(grid: BatchSystem) -> None:
    """What the script has exported included; a task of qrsh has other values, and the command line of the agent."""
    script = grid.file("seen.py", SEEN)
    ended = job(grid, f"export EXPORTED='a b'\n{LAUNCH} {sys.executable} -S {script}", pe="mpi 4")
    expected = [
        f"{host} {['4', '4', 'job', 'a b', host]} [] {'head' if host == 'n01' else host} {host == 'n01'}"
        for host in ("n01", "n02", "n03", "n04")
    ]
    assert [line.replace(" n01 True", " head True") for line in ended.lines] == expected, ended.err


def test_tasks_of_an_array_are_jobs_of_their_own(grid: BatchSystem) -> None:
    """And when they are over, a launcher with their environment starts nothing."""
    table = f"{LAUNCH} --display-allocation --display-table --do-not-launch true"
    text = f"{table} > table.$SGE_TASK_ID\nenv -0 > environ.$SGE_TASK_ID\n{WHERE.replace('WORDS', '')}"
    array = GridJob(grid, text, "-t", "3-4", pe="mpi 2")
    wait_until(array.gone)
    for task in (3, 4):
        assert f"Grid Engine's job {array.number}.{task}" in (grid.work / f"table.{task}").read_text()
    environ = dict(pair.split("=", 1) for pair in (grid.work / "environ.3").read_text().split("\0") if pair)
    late = grid.run(*LAUNCH.split(), "touch", "started", where="n01", env=environ)
    assert late.code != 0
    assert f"the hosts of Grid Engine's job {array.number}.3, cannot be read: No such file" in late.err
    assert not (grid.work / "started").exists()


REFUSED = (
    ("", "-n 8", "Grid Engine's job"),
    ("", "-H n09", "n09 is not a host of Grid Engine's job"),
    ("PE_HOSTFILE=/nothing/there", "", "PE_HOSTFILE=/nothing/there, the hosts of Grid Engine's job"),
    ("PE_HOSTFILE=odd", "", "'n01 four all.q@n01 UNDEFINED' is not HOST SLOTS QUEUE"),
    ("PE_HOSTFILE=zero", "", "has no slots: PE_HOSTFILE names no host with any"),
    ("PE_HOSTFILE=empty", "", "has no slots: PE_HOSTFILE names no host with any"),
    ("PE_HOSTFILE=words", "", "'-oProxyCommand=x' is not the name of a host"),
    ("PBS_JOBID=1 PBS_ENVIRONMENT=PBS_BATCH PBS_NODEFILE=nodes", "", "2 systems have granted hosts"),
    ("PE_HOSTFILE=other", "", "n77"),
    ("", "--agent-python python9", "python9"),
    ("", "--resource-manager slurm", "this launch does not run under slurm"),
)


def test_what_is_wrong_is_said_once_and_nothing_is_started(grid: BatchSystem) -> None:
    for name, text in (
        ("odd", "n01 four all.q@n01 UNDEFINED\n"),
        ("zero", "n01 0 all.q@n01 UNDEFINED\n"),
        ("empty", "\n"),
        ("words", "-oProxyCommand=x 1 all.q@n02 UNDEFINED\n"),
        ("other", "n01 1 all.q@n01 UNDEFINED\nn77 1 all.q@n77 UNDEFINED\n"),
        ("nodes", "n02\n"),
    ):
        grid.file(name, text)
    launches = (
        f"env {changed} {LAUNCH} {words} touch started 2>err.{at}" for at, (changed, words, _) in enumerate(REFUSED)
    )
    ended = job(grid, "\n".join(f"{launch}; echo $?" for launch in launches), pe="mpi 2")
    codes = ended.out.split()
    for at, (changed, words, message) in enumerate(REFUSED):
        said = (grid.work / f"err.{at}").read_text()
        assert codes[at] != "0", (changed, words)
        assert message in said, (changed, words)
        assert "Traceback" not in said
        assert len([line for line in said.splitlines() if line.startswith("mslaunch: ")]) == 1, said
    assert not (grid.work / "started").exists()


def test_a_job_without_a_parallel_environment_is_this_host(grid: BatchSystem) -> None:
    """It has one slot; Grid Engine sets no PE_HOSTFILE."""
    grid.file("job.sh", f"#!/bin/sh\n{LAUNCH} -n 1 hostname\n").chmod(0o755)
    ended = grid.run("qrsh", "-now", "no", "-cwd", "-V", "-l", "hostname=n03", "./job.sh")
    assert (ended.code, ended.lines) == (0, ["n03"]), ended.err
