"""MindFormers' scripts/msrun_launcher.sh with the shim for msrun, as it is called with 1, 2, 6 and 9 arguments.

The script itself is not here.  `SCRIPT` plays it: the words that it gives msrun, how it splits them (by eval), the
limit that it sets and its defaults are those of mindspore-lab/mindformers 497f163, scripts/msrun_launcher.sh.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BOUND, environment, free_port, wait_until

SCRIPT = """#!/bin/bash
workers=8 here=8 address=127.0.0.1 port=8118 node=0 logs=output/msrun_log join=False seconds=7200
case $# in
1) ;;
2) workers=$2 here=$2 ;;
6) workers=$2 here=$2 port=$3 logs=$4 join=$5 seconds=$6 ;;
9) workers=$2 here=$3 address=$4 port=$5 node=$6 logs=$7 join=$8 seconds=$9 ;;
*) exit 1 ;;
esac
several=
[ $# -eq 9 ] && [ "$workers" != "$here" ] && several=yes
line="msrun --bind_core=True --worker_num=$workers --local_worker_num=$here ${several:+--master_addr=$address}"
line="$line --master_port=$port ${several:+--node_rank=$node} --log_dir=$logs --join=$join --cluster_time_out=$seconds"
ulimit -u unlimited
eval $line $1
"""
ALONE = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
WORKER = """
import os, sys
names = "RANK_ID", "RANK_SIZE", "DEVICE_ID", "MS_WORKER_NUM", "MS_ROLE"
with open(f"worker.{os.environ['RANK_ID']}.tmp", "w") as file:
    print(*(os.environ[name] for name in names), *sys.argv[1:], file=file)
os.rename(file.name, file.name[:-4])
print("rank", os.environ["RANK_ID"])
"""


@pytest.fixture
def start(tmp_path: Path):  # type: ignore[no-untyped-def]
    """`start(*arguments)` runs the script with them, in a directory that has the worker.

    `alone`: in a network of its own, where no other test has the port of the script's default.
    """
    shims = tmp_path / "shims"
    install = [sys.executable, "-m", "mslaunch", "--install-shims", str(shims)]
    subprocess.run(install, env=environment(), capture_output=True, timeout=BOUND, check=True)
    (tmp_path / "msrun_launcher.sh").write_text(SCRIPT)
    (tmp_path / "worker.py").write_text(WORKER)
    env = environment(PATH=f"{shims}:{Path(sys.executable).parent}:{os.environ['PATH']}")

    def started(*arguments: object, alone: bool = False) -> subprocess.Popen[str]:
        line = [*(ALONE if alone else ()), "bash", "msrun_launcher.sh", *map(str, arguments)]
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(line, cwd=tmp_path, env=env, **how)  # type: ignore[call-overload, no-any-return]

    return started


def check(directory: Path, ranks: int, local: int) -> None:
    """All workers were there; a launch that does not join has returned before their end."""
    files = [directory / f"worker.{rank}" for rank in range(ranks)]
    wait_until(lambda: all(file.exists() for file in files), tell=lambda: str(sorted(os.listdir(directory))))
    for rank, file in enumerate(files):
        assert file.read_text() == f"{rank} {ranks} {rank % local} {ranks} MS_WORKER --config some.yaml\n"


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
ORDER = "worker.py --config some.yaml"


@pytest.mark.root
@ROOT
def test_the_program_alone_has_eight_workers(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = start(ORDER, alone=True)
    said, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 0, said
    check(tmp_path, 8, 8)
    logs = tmp_path / "output" / "msrun_log"
    wait_until(lambda: all((logs / f"worker_{rank}.log").read_text() == f"rank {rank}\n" for rank in range(8)))


@pytest.mark.root
@ROOT
def test_a_number_of_workers(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = start(ORDER, 3, alone=True)
    said, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 0, said
    check(tmp_path, 3, 3)


def test_six_arguments_join(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = start(ORDER, 2, free_port(), "logs", "True", 300)
    said, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 0, said
    check(tmp_path, 2, 2)
    assert [(tmp_path / "logs" / f"worker_{rank}.log").read_text() for rank in (0, 1)] == ["rank 0\n", "rank 1\n"]


def test_nine_arguments_are_a_share_of_the_workers(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """One call on each host; here both are this one."""
    port = free_port()
    calls = [start(ORDER, 4, 2, "127.0.0.1", port, node, f"logs{node}", "True", 60) for node in (0, 1)]
    for process in calls:
        said, _ = process.communicate(timeout=BOUND)
        assert process.returncode == 0, said
    check(tmp_path, 4, 2)
    assert (tmp_path / "logs1" / "worker_3.log").read_text() == "rank 3\n"


def test_a_worker_that_fails_is_told(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "worker.py").write_text("import sys; sys.exit(7)")
    process = start(ORDER, 2, free_port(), "logs", "True", 300)
    said, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 7 and "ended with exit code 7" in said
