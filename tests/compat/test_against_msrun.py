"""The msrun dialect compared with the real msrun: which workers there are, their variables, and names of their logs.

The program only prints what it sees, so no MindSpore job runs; but msrun itself imports MindSpore each time.  Known
mistakes of msrun are left out (RANK_ID is 0 for all without --node_rank).  MSLAUNCH_TEST_MINDSPORE_PYTHON names the
interpreter beside msrun.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import free_port

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", "")
MSRUN = Path(PYTHON).with_name("msrun") if PYTHON else None
SECONDS = 100  #: for one call; msrun takes 4 of them on an idle machine
VARIABLES = (
    "RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK_TABLE_FILE", "MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST",
    "MS_SCHED_PORT", "MS_TOPO_TIMEOUT", "MS_SIMULATION_LEVEL", "MSRUN_CPU_LIST",
)  # fmt: skip
TELLS = f"""
import json, os, sys
seen = {{name: os.environ.get(name) for name in {VARIABLES!r}}}
print(json.dumps([seen, sorted(os.sched_getaffinity(0)), sys.argv[1:]]))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.limit(1200),
    pytest.mark.skipif(
        not (MSRUN and MSRUN.exists()), reason="NOT TESTED, not installed: msrun (MSLAUNCH_TEST_MINDSPORE_PYTHON)"
    ),
]

#: command lines; PORT is one that is free
LINES = [
    "--worker_num=2 --local_worker_num=2 --bind_core=True tells.py --epochs 3 --join=False",
    "--worker_num 2 --local 2 --node_rank=3 --cluster=300 --worker_log_name=w_{ip}_{hostname} --rank_t t.json tells.py",
    "--worker_num=4 --local_worker_num=2 --node_rank=1 python tells.py",
    "--worker_num=4 --local_worker_num=2 tells.py",
    "--worker_num=2 --local_worker_num=1 --node_rank=0 --master_addr=[::1] --log_dir=d/e tells.py",
    "--worker_num=16 --node_rank=1 --cluster_time_out=-1 tells.py",
    "--worker_num=8 --local_worker_num=1 --sim_level=1 --sim_rank_id=5 tells.py",
    "--worker_num=2 --local_worker_num=2 --sim_level=0 tells.py",
    "--worker_num=2 --local_worker_num=2 --bind_core={'device0':['0'],'device1':['0']} tells.py",
]


@pytest.mark.parametrize("line", LINES)
def test_the_same_workers_get_the_same_variables(line: str, tmp_path: Path) -> None:
    words = [word.replace("'", '"') for word in line.split()]
    words[:0] = ["--join=True", f"--master_port={free_port()}"]
    theirs = logs(tmp_path / "theirs", [str(MSRUN), *words])
    ours = logs(tmp_path / "ours", [sys.executable, "-m", "mslaunch", "--dialect", "msrun", *words])
    if "--local_worker_num=2 tells" in line:
        for seen, *_ in (*theirs.values(), *ours.values()):
            seen.pop("RANK_ID")
    if "--sim_" in line:  # it passes on what does not matter there
        for seen, *_ in (*theirs.values(), *ours.values()):
            seen.pop("MS_TOPO_TIMEOUT")
            seen.pop("MS_NODE_ID")
    assert ours == theirs and ours


def logs(where: Path, command: list[str]) -> dict[str, list[object]]:
    """The report of each worker, by the name of its log."""
    where.mkdir()
    (where / "tells.py").write_text(TELLS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MS_", "MSRUN_", "RANK_"))}
    path = f"{Path(PYTHON).parent}:{kept['PATH']}"
    done = subprocess.run(
        command, cwd=where, env={**kept, "PATH": path, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    found = {str(path.relative_to(where)): path.read_text() for path in where.rglob("*.log")}
    assert done.returncode == 0, (command, done.stdout, done.stderr, found)
    return {name: json.loads(text.splitlines()[-1]) for name, text in found.items() if "scheduler" not in name}
