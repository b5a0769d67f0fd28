"""Launches in jobs of a real Slurm: which ranks run where, whatever was asked for, and how the launcher was started."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from batch_systems import MSLAUNCH, ROOT, BatchSystem, marks

from mslaunch.resource_managers.node_lists import expand

pytestmark = marks("slurmctld", "slurmd", "munged")
WHERE = (*MSLAUNCH, "sh", "-c", "echo $RANK $(hostname)")


def placed(*counts: int) -> list[str]:
    """What `WHERE` prints for so many ranks on each node."""
    hosts = [f"n{number:02d}" for number, count in enumerate(counts, 1) for _ in range(count)]
    return [f"{rank} {host}" for rank, host in enumerate(hosts)]


@pytest.mark.parametrize(
    ("request_", "counts"),
    [
        ("-N3 -n7", (4, 2, 1)),
        ("-N4 --ntasks-per-node=2", (2, 2, 2, 2)),
        ("-N4 -n5", (2, 1, 1, 1)),
        ("-N2", (1, 1)),
        ("-N3 -n7 --exclusive", (3, 2, 2)),
        ("-N4 -n6 -m cyclic", (3, 1, 1, 1)),
        ("-N2 -n3 -c2", (2, 1)),
        ("-n2 : -N2 -n3", (2, 2, 1)),  # a heterogeneous job, of two components
    ],
)
def test_ranks_are_where_tasks_were_granted(request_: str, counts: tuple[int, ...], slurm: BatchSystem) -> None:
    """From the login node, which is in no allocation."""
    ended = slurm.run("salloc", "-Q", *request_.split(), *WHERE)
    assert (ended.code, ended.lines) == (0, placed(*counts)), ended.err


def test_a_batch_script_needs_no_word_about_hosts(slurm: BatchSystem) -> None:
    """Its node is one of the job's; -n may be less than all slots, and bytes pass as they are."""
    script = slurm.file(
        "job.sh",
        f"""#!/bin/sh
#SBATCH -N 3 -n 7
#SBATCH -o out
{sys.executable} -m mslaunch sh -c 'echo $RANK $(hostname)'
{sys.executable} -m mslaunch -n 2 --map-by node sh -c 'echo second $RANK $(hostname)'
{sys.executable} -m mslaunch --output-filename logs head -c 1000000 /dev/urandom > /dev/null
{sys.executable} -m mslaunch -n 5 sh -c 'exit $RANK'
echo the code is $?
""",
    )
    ended = slurm.run("sbatch", "-Q", "-W", script)
    lines = sorted((slurm.work / "out").read_text().splitlines())
    assert set(placed(4, 2, 1)) < set(lines), ended.err
    assert {"second 0 n01", "second 1 n02"} < set(lines)
    assert any(line in lines for line in ("the code is 1", "the code is 2", "the code is 3", "the code is 4"))
    assert [path.stat().st_size for path in sorted(slurm.work.glob("logs/*/rank.*/stdout"))] == [1_000_000] * 7


def test_an_array_s_tasks_are_jobs_of_their_own(slurm: BatchSystem) -> None:
    table = f"{sys.executable} -m mslaunch --display-allocation --display-table --do-not-launch true"
    slurm.run("sbatch", "-Q", "-W", "-N2", "--array=3-4", "-o", "out%a", "--wrap", table)
    for task in (3, 4):
        assert f"_{task}" in (slurm.work / f"out{task}").read_text()


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-H", "n02,n03:2"], ["0 n02", "1 n03", "2 n03"]),
        (["-H", "n03:9"], ["0 n03", "1 n03"]),
        (["-H", "+n1"], ["0 n02", "1 n02"]),
        (["-H", "^n01"], ["0 n02", "1 n02", "2 n03", "3 n03"]),
        (["--nolocal", "-n", "1"], ["0 n01"]),  # head is no node of the job
    ],
)
def test_the_command_line_chooses_among_the_nodes(words: list[str], lines: list[str], slurm: BatchSystem) -> None:
    ended = slurm.run("salloc", "-Q", "-N3", "--ntasks-per-node=2", *MSLAUNCH, *words, *WHERE[3:])
    assert (ended.code, ended.lines) == (0, lines), ended.err


def test_a_launch_in_a_step_has_the_whole_job(slurm: BatchSystem) -> None:
    ended = slurm.run("salloc", "-Q", "-N3", "-n7", "srun", "-N1", "-n1", *WHERE)
    assert (ended.code, ended.lines) == (0, placed(4, 2, 1)), ended.err


def test_srun_by_itself_is_a_job_with_one_step(slurm: BatchSystem) -> None:
    ended = slurm.run("srun", "-N1", "-n1", *WHERE)
    assert (ended.code, ended.lines) == (0, placed(1)), ended.err


def test_several_launchers_in_a_step_are_refused(slurm: BatchSystem) -> None:
    ended = slurm.run("srun", "-N2", "-n2", *MSLAUNCH, "touch", "started")
    assert "srun has started mslaunch 2 times" in ended.err
    assert ended.code == 1
    assert not (slurm.work / "started").exists()


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        (["-H", "n04"], {}, "n04 is not a host of Slurm's job"),
        (["-n", "8"], {}, "Slurm's job"),
        ([], {"SLURM_JOB_NODELIST": "n[01-"}, "SLURM_JOB_NODELIST='n[01-' cannot be read: a ] is missing"),
        ([], {"SLURM_TASKS_PER_NODE": "1"}, "SLURM_TASKS_PER_NODE=1 is for 1 node, and the job has 2"),
        ([], {"SLURM_TASKS_PER_NODE": "0,0"}, "has no slots"),
        ([], {"SLURM_JOB_ID": "4711"}, "4711"),
        ([], {"PATH": "/nothing"}, "srun cannot be run: No such file or directory"),
        (["--agent-python", "python9"], {}, "Exited with exit code 2"),
        (["--resource-manager", "slurp"], {}, "there is no resource manager 'slurp'"),
    ],
)
def test_what_is_wrong_is_said_once_and_nothing_is_started(
    words: list[str], env: dict[str, str], message: str, slurm: BatchSystem
) -> None:
    changed = [f"{name}={value}" for name, value in env.items()]
    ended = slurm.run("salloc", "-Q", "-N2", "-n3", "env", *changed, *MSLAUNCH, *words, "touch", "started")
    assert ended.code != 0
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert len([line for line in ended.err.splitlines() if line.startswith("mslaunch: ")]) == 1, ended.err
    assert not (slurm.work / "started").exists()


def test_a_job_that_has_ended_is_named(slurm: BatchSystem) -> None:
    script = f"scancel -Q $SLURM_JOB_ID; {' '.join(MSLAUNCH)} touch started"
    ended = slurm.run("salloc", "-Q", "-N2", "sh", "-c", f"trap '' TERM HUP; {script}")
    assert "nothing was started" in ended.err or "cancelled" in ended.err, ended.err
    assert not (slurm.work / "started").exists()


def test_ranks_see_no_step_of_ours(slurm: BatchSystem) -> None:
    """torch, JAX and Lightning would take its variables for theirs; those of the job stay."""
    names = "import os; os.write(1, (' '.join(sorted(os.environ)) + '\\n').encode())"
    ended = slurm.run("salloc", "-Q", "-N2", *MSLAUNCH, sys.executable, "-c", names)
    for line in ended.lines:
        names = set(line.split())
        assert {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "RANK"} < names
        assert not {name for name in names if name.startswith(("SLURM_STEP", "SLURM_LAUNCH"))}
        assert not names & {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NODEID"}
    assert len(ended.lines) == 2, ended.err


def test_node_lists_are_those_of_scontrol(slurm: BatchSystem) -> None:
    """2,000 lists, 20 a call: the names of a call are a list as well."""
    rng = random.Random(13)
    lists = [",".join(_name(rng) for _ in range(rng.randint(1, 4))) for _ in range(2000)]
    chunks = [lists[at : at + 20] for at in range(0, len(lists), 20)]
    script = "\n".join(f"scontrol show hostnames '{','.join(chunk)}'; echo ." for chunk in chunks)
    ended = slurm.run("sh", slurm.file("lists", script))
    theirs = [part.split() for part in ended.out.split(".\n")[:-1]]
    for chunk, names in zip(chunks, theirs, strict=True):
        assert expand(",".join(chunk)) == names


def _name(rng: random.Random) -> str:
    text = "".join(rng.choice("abxyz-") for _ in range(rng.randint(1, 3))).strip("-") or "n"
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        parts = []
        for _ in range(rng.randint(1, 3)):
            low, width = rng.randint(0, 120), rng.randint(0, 4)
            high = low + rng.randint(0, 4)
            parts.append(f"{low:0{width}d}" + (f"-{high:0{width}d}" if high > low else ""))
        text += rng.choice(("", "r")) + f"[{','.join(parts)}]"
    return text


def test_the_tool_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "slurm", "up", "1", "--dir", "/nowhere/at/all"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nothing"},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("slurm: ")


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ("-rmk slurm", "0 n01, 1 n01, 2 n02"),
        ("-bootstrap slurm -n 5", "0 n01, 1 n01, 2 n02, 3 n01, 4 n01"),
        ("-bootstrap=slurm -ppn 1 -n 4", "0 n01, 1 n02, 2 n01, 3 n02"),
        ("-bootstrap slurm -hosts n02 -n 2", "0 n02, 1 n02"),
        ("-host n02 -n 1 PROGRAM : -host n01 -n 2", "0 n02, 1 n01, 2 n01"),
    ],
)
def test_words_of_hydra_in_a_job(words: str, places: str, slurm: BatchSystem) -> None:
    """Ranks go round the hosts of the job, as many to each as it has tasks, or -ppn."""
    program = WHERE[len(MSLAUNCH) :]
    line = [part for word in words.split() for part in (program if word == "PROGRAM" else [word])]
    ended = slurm.run("salloc", "-Q", "-N2", "-n3", *MSLAUNCH, "--dialect", "hydra", *line, *program)
    assert (ended.code, ended.lines) == (0, places.split(", ")), ended.err
