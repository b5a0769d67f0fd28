"""What docs/operations.md says of systemd units, log rotation and what stays, tried with the page's own blocks."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launching import Job, environment, wait_until

from mslaunch.jobs.job_registry import JobEntry, JobRegistry

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
WAITS = "import time; print('up', flush=True); time.sleep(100)"


def block(title: str) -> str:
    (found,) = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    return found


UNIT = block("/etc/systemd/system/train.service")


@pytest.fixture
def unit() -> configparser.ConfigParser:
    read = configparser.ConfigParser(strict=True, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(UNIT)
    return read


def test_systemd_knows_the_words_of_the_unit(unit: configparser.ConfigParser, tmp_path: Path) -> None:
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    known = {
        "Type",
        "User",
        "WorkingDirectory",
        "Environment",
        "ExecStart",
        "KillMode",
        "TimeoutStopSec",
        "LimitMEMLOCK",
    }
    assert set(unit["Service"]) == known  # systemd.service(5), .exec(5), .kill(5)
    if shutil.which("systemd-analyze"):
        path = tmp_path / "train.service"
        path.write_text(UNIT.replace("/opt/mslaunch/bin/mslaunch", sys.executable), encoding="utf-8")
        words = ["systemd-analyze", "verify", "--man=no", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_its_command_line_is_one_of_ours(unit: configparser.ConfigParser, tmp_path: Path) -> None:
    command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert os.path.basename(command) == "mslaunch"
    (tmp_path / "hosts").write_text("node[01-04] slots=2\n")
    job = Job(["--do-not-launch", "--display-map", *words], environment(GLOG_v="3"), cwd=tmp_path)
    result = job.end()
    job.destroy()
    assert (result.code, result.err) == (0, "")
    assert result.out.count(b"Process rank") == 8


def test_stopping_it_ends_the_ranks_and_counts_as_a_failure(unit: configparser.ConfigParser, tmp_path: Path) -> None:
    """SIGTERM to the launcher alone, as KillMode=mixed has it, and 1, as the page says."""
    assert unit["Service"]["KillMode"] == "mixed"
    assert "after SIGTERM mslaunch ends with 1" in PAGE
    job = Job(["-n", "2", sys.executable, "-c", WAITS], environment(), cwd=tmp_path)
    try:
        job.expect(b"up", 2)
        os.kill(job.pid, signal.SIGTERM)
        result = job.end(bound=float(unit["Service"]["TimeoutStopSec"]))
        assert result.code == 1
        job.wait_gone()
    finally:
        job.destroy()


def test_a_log_that_was_copied_and_truncated_goes_on_at_its_beginning(tmp_path: Path) -> None:
    assert "copytruncate" in block("/etc/logrotate.d/train")
    os.mkfifo(tmp_path / "go")
    program = "print('before', flush=True); open('go').read(); print('after')"
    words = ["-n", "1", "--output-filename", "logs:nojobid", sys.executable, "-c", program]
    job = Job(words, environment(), cwd=tmp_path)
    log = tmp_path / "logs" / "rank.0" / "stdout"
    try:
        job.expect(b"before\n")
        wait_until(lambda: log.read_bytes() == b"before\n")
        os.truncate(log, 0)
        (tmp_path / "go").write_bytes(b"")
        assert job.end().code == 0
        assert log.read_bytes() == b"after\n"
    finally:
        job.destroy()


def test_the_links_of_shims_are_found_and_removed(tmp_path: Path) -> None:
    (line,) = re.findall(r"^    (find ~/shims .*?)  +#", PAGE, re.MULTILINE)
    mslaunch = Path(sys.executable).with_name("mslaunch")
    shims = tmp_path / "shims"
    words = [mslaunch, "--install-shims", str(shims)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment(HOME=str(tmp_path)))
    (shims / "other").symlink_to("/bin/true")
    assert len(list(shims.iterdir())) > 4
    subprocess.run(["sh", "-c", line], check=True, env=environment(HOME=str(tmp_path)))
    assert [path.name for path in shims.iterdir()] == ["other"]


def test_a_launch_leaves_nothing_in_the_home_directory(tmp_path: Path) -> None:
    """Also one that runs long enough to be in the list of jobs; it is the list that everybody has."""
    assert "A plain launch writes nothing into your home directory, unless `/tmp/mslaunch-UID` belongs to" in PAGE
    env = environment(HOME=str(_folder(tmp_path / "home")))
    del env["MSLAUNCH_JOBS"]
    os.mkfifo(tmp_path / "go")
    job = Job(["-n", "2", "--oversubscribe", "sh", "-c", "read line < go"], env, cwd=tmp_path)
    try:
        wait_until(lambda: _entry(env, job.pid) is not None)
        entry = _entry(env, job.pid)
        assert entry and os.path.dirname(entry.folder) == f"/tmp/mslaunch-{os.geteuid()}"
        with (tmp_path / "go").open("r+b", 0) as gate:  # who opens it later finds its line as well
            gate.write(b"on\non\n")
            assert job.end().code == 0
        job.wait_gone()
    finally:
        job.destroy()
    assert not os.path.exists(entry.folder)
    assert os.listdir(tmp_path / "home") == [] and sorted(os.listdir(tmp_path)) == ["go", "home"]


def test_a_detached_launch_leaves_nothing_there_either(tmp_path: Path) -> None:
    env = environment(HOME=str(_folder(tmp_path / "home")), MSLAUNCH_JOBS=str(tmp_path / "jobs"))
    job = Job(["--detach", "-n", "2", "--oversubscribe", "true"], env, cwd=tmp_path)
    assert job.end().code == 0
    job.wait_gone()
    job.destroy()
    assert os.listdir(tmp_path / "home") == [] and sorted(os.listdir(tmp_path)) == ["home", "jobs"]


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _entry(env: dict[str, str], pid: int) -> JobEntry | None:
    """That of the launch with this process."""
    return next((entry for entry in JobRegistry(env).entries() if entry.process.pid == pid), None)
