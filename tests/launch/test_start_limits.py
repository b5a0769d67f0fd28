"""Limits of a host are seen before anything starts, and what fails for many ranks is said once."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import BOUND, environment, through_rsh

sys.path.append(str(Path(__file__).resolve().parents[1] / "hostile"))
from other_user import interpreter, run_as

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 63999  # a user without processes


def limited(limit: str, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a shell that has set a limit."""
    line = ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"', sys.executable, "-m", "mslaunch", *map(str, words)]
    return subprocess.run(line, env=environment(), cwd=cwd, capture_output=True, text=True, timeout=BOUND, check=False)


def test_too_few_descriptors_are_one_line(tmp_path: Path) -> None:
    ended = limited("-n 64", "-n", 64, "--oversubscribe", "touch", "started", cwd=tmp_path)
    found = re.search(
        r"only (\d+) of 64 ranks can be started with 64 open files in a process \(ulimit -Hn\)", ended.stderr
    )
    assert found and ended.returncode == 1
    assert len(ended.stderr.splitlines()) <= 4, ended.stderr
    assert f"at most {found[1]} ranks on a host would do" in ended.stderr and "ranks 0-63" in ended.stderr
    assert not (tmp_path / "started").exists()
    fewer = limited("-n 64", "-n", found[1], "--oversubscribe", "true", cwd=tmp_path)
    assert (fewer.returncode, "can be started" in fewer.stderr) == (0, False)


def test_a_soft_limit_is_raised_and_ranks_have_it_as_it_was(tmp_path: Path) -> None:
    ended = limited("-Sn 64", "-n", 30, "--oversubscribe", "sh", "-c", "ulimit -Sn", cwd=tmp_path)
    assert ended.returncode == 0
    assert ended.stdout.split() == ["64"] * 30


def test_hosts_with_the_same_limit_are_one_line(tmp_path: Path) -> None:
    hosts = through_rsh("h1:40", "h2:40", "h3:40")
    ended = limited("-n 64", *hosts, "-n", 120, "touch", "started", cwd=tmp_path)
    assert ended.returncode == 1 and not (tmp_path / "started").exists()
    assert re.search(r"only \d+ of up to 40 ranks each can be started with 64 open files .* on h\[1-3\]", ended.stderr)
    assert len(ended.stderr.splitlines()) <= 4, ended.stderr


@pytest.mark.root
def test_too_few_processes_are_one_line(second_user_home: Path) -> None:
    line = [
        "prlimit",
        "--nproc=20",
        interpreter(),
        "-m",
        "mslaunch",
        "-n",
        "40",
        "--oversubscribe",
        "touch",
        "started",
    ]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(second_user_home), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = run_as(NOBODY, line, env=env, cwd=second_user_home)
    assert ended.returncode == 1
    found = re.search(rb"only (\d+) of 40 ranks can be started with 20 processes of a user \(ulimit -u\)", ended.stderr)
    assert found and 0 < int(found[1]) < 20, ended.stderr
    assert len(ended.stderr.splitlines()) <= 4


@pytest.fixture
def second_user_home() -> Iterator[Path]:
    """A directory with the package that another user can read."""
    if os.geteuid() or not shutil.which("setpriv") or not shutil.which("prlimit"):
        pytest.skip("NOT TESTED, needs root, setpriv and prlimit: a second user")
    folder = Path(tempfile.mkdtemp(prefix="mslaunch-limits-"))
    folder.chmod(0o755)
    shutil.copytree(ROOT / "mslaunch", folder / "mslaunch", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("where", [["-n", "1"], [*through_rsh("alpha"), "-n", "1"]], ids=["local", "another host"])
def test_a_launcher_without_memory_ends_the_job_with_a_sentence(start, where, tmp_path: Path) -> None:
    """What it reads of one rank that prints much needs more than its address space has left."""
    go = tmp_path / "go"
    line = f"echo ready $$; while [ ! -e {go} ]; do sleep 0.05; done; exec head -c 100000000 /dev/zero"
    job = start([*where, "--pty", "no", "sh", "-c", line])
    job.expect(b"ready")
    pages = int(Path(f"/proc/{job.pid}/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGESIZE")
    resource.prlimit(job.pid, resource.RLIMIT_AS, (most, most))
    go.touch()
    ended = job.end()
    assert (ended.code, "Traceback" in ended.err) == (1, False), ended.err
    assert ended.err.startswith("mslaunch: mslaunch has no more memory, and has ended the job"), ended.err
    job.wait_gone()
