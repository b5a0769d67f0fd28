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


# --- a limit that is met is named with its value, by whoever meets it

STARTS = (126, 205, 255, 1)  # exit codes of what was not started


def assert_named(ended: subprocess.CompletedProcess[str], limit: str) -> None:
    """Nothing ran, and one message says which limit it was, and what to do."""
    assert ended.returncode in STARTS and ended.stdout == "", ended
    assert "Traceback" not in ended.stderr and "please report" not in ended.stderr, ended.stderr
    assert ended.stderr.startswith("mslaunch: ") and ended.stderr.count("\nmslaunch: ") == 0, ended.stderr
    assert limit in ended.stderr and "raise" in ended.stderr, ended.stderr


@pytest.mark.parametrize("limit", range(5, 61))
def test_few_descriptors_of_the_launcher_and_its_agent(tmp_path: Path, limit: int) -> None:
    """With fewer than five no Python starts."""
    python = os.path.realpath(sys.executable)  # that of a venv reads .pth files first
    paths = os.pathsep.join([str(ROOT), *filter(os.path.isdir, sys.path)])
    line = ["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', python, "-S", "-m", "mslaunch", "-n", "2"]
    env = {**environment(), "PYTHONPATH": paths}
    ended = subprocess.run(
        [*line, "--oversubscribe", "touch", "started"],
        env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND, check=False,
    )  # fmt: skip
    if ended.returncode or limit < 20:
        assert_named(ended, f"ulimit -n is {limit})")
        assert limit >= 20 or not (tmp_path / "started").exists()


def remote(tmp_path: Path, before: str, python: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A launch with an agent below a program that `before` the shell of its host sets a limit."""
    agent = tmp_path / "agent"
    agent.write_text(f'#!/bin/sh\n{before} sh -c "$2"\n')
    agent.chmod(0o755)
    line = [sys.executable, "-m", "mslaunch", "--rsh-agent", str(agent), "--agent-python", python, *words]
    return subprocess.run(
        line, env=environment(), cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("limit", [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20])
def test_few_descriptors_of_another_host(tmp_path: Path, limit: int) -> None:
    ended = remote(tmp_path, f"ulimit -n {limit}; exec", interpreter(), "-H", "n01:2", "-n", "2", "touch", "started")
    if ended.returncode or limit < 14:
        assert_named(ended, f"ulimit -n is {limit})")
        assert "n01" in ended.stderr and not (limit < 14 and (tmp_path / "started").exists())


def test_no_descriptor_for_the_shell_of_another_host(tmp_path: Path) -> None:
    ended = remote(tmp_path, "ulimit -n 3; exec", interpreter(), "-H", "n01:2", "-n", "2", "true")
    assert_named(ended, "ulimit -n")
    assert ended.stderr.startswith("mslaunch: n01: it allows too few open files to start an agent")


@pytest.mark.root
@pytest.mark.parametrize("limit", range(1, 6))
def test_few_processes_of_another_host(tmp_path: Path, limit: int) -> None:
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("NOT TESTED, needs root and setpriv: a second user")
    user = f"exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups prlimit --nproc={limit}:{limit}"
    ended = remote(tmp_path, user, interpreter(), "--wdir", "/tmp", "-H", "n01:6", "-n", "6", "sleep", "1")
    assert_named(ended, f"ulimit -u is {limit})")
    assert "n01" in ended.stderr


@pytest.mark.root
@pytest.mark.parametrize("limit", range(1, 7))
def test_few_processes_of_the_launcher_and_its_agent(second_user_home: Path, limit: int) -> None:
    line = ["prlimit", f"--nproc={limit}", interpreter(), "-m", "mslaunch", "-n", "6", "--oversubscribe", "sleep", "1"]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(second_user_home), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = run_as(NOBODY, line, env=env, cwd=second_user_home)
    said = "".join(each for each in ended.stderr.decode().splitlines(True) if "ranks share" not in each)  # a note
    assert_named(
        subprocess.CompletedProcess(line, ended.returncode, ended.stdout.decode(), said), f"ulimit -u is {limit})"
    )
