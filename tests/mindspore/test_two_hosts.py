"""The example network on two real hosts: ranks, and the scheduler, on either side of an ssh link.

Rank 0's host runs the scheduler though the launcher is on a third host, which has no part in the training.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
NET = PROJECT / "examples" / "mindspore" / "net.py"
PYTHON = os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", "")
CLUSTER = [sys.executable, str(PROJECT / "scripts" / "cluster")]
SECONDS = 170  #: 25 on a quiet machine

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.limit(300),
    pytest.mark.skipif(
        not os.access(PYTHON, os.X_OK),
        reason=f"MSLAUNCH_TEST_MINDSPORE_PYTHON is {PYTHON!r}: it should name a Python that has MindSpore",
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "cluster"
    subprocess.run([*CLUSTER, "up", "2", "--dir", str(directory)], check=True, timeout=60)
    yield directory
    subprocess.run([*CLUSTER, "down", "--dir", str(directory)], check=True, timeout=60)


def processes(cluster: Path, host: str) -> str:
    """What runs there, sshd and the asking itself aside."""
    listed = subprocess.run(
        [*CLUSTER, "exec", "--dir", str(cluster), host, "ps", "-eo", "args="],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    return "\n".join(line for line in listed.stdout.splitlines() if "sshd" not in line and not line.startswith("ps "))


def test_training_on_two_hosts(cluster: Path, tmp_path: Path) -> None:
    logs = tmp_path / "log_output"
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [*CLUSTER, "exec", "--dir", str(cluster), "head", sys.executable, "-m", "mslaunch", "-H", "n01:1,n02:1",
         "--output-filename", str(logs), "--merge-stderr-to-stdout", PYTHON, str(NET)],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for rank in range(2):
        text = (logs / "1" / f"rank.{rank}" / "stdout").read_text()
        assert "parameters equal on all 2 ranks" in text, text[-2000:]
    assert (logs / "1" / "scheduler" / "stdout").stat().st_size > 0
    assert processes(cluster, "n01") == ""
    assert processes(cluster, "n02") == ""
