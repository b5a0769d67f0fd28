"""--device-wait: another attempt begins once no process holds the accelerators, or after a limit, and says who does."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import launching
import pytest
from launching import BOUND, Job, program, through_rsh

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nsenter"), reason="needs root and util-linux"),
]
#: what of /dev a launch needs
NEEDED = ("null", "zero", "urandom", "random", "tty", "ptmx", "pts", "shm", "fd")
HOLD = "import sys; held = open('/dev/nvidia1'); print('ready', flush=True); sys.stdin.read()"
TWO = through_rsh("alpha:1", "beta:1")


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run where /dev has two devices of NVIDIA."""
    made = tmp_path / "dev"
    made.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (made / name).touch()
    script = f"""
        mount -t tmpfs none /mnt && mkdir /mnt/real && mount --rbind /dev /mnt/real
        for name in {" ".join(NEEDED)}; do ln -sfn /mnt/real/$name {made}/$name; done
        mount --rbind {made} /dev && exec "$0" "$@"
    """
    monkeypatch.setattr(launching, "COMMAND", ["unshare", "-m", "sh", "-ec", script, *launching.COMMAND])


@pytest.fixture
def hold() -> Iterator[Callable[[Job], subprocess.Popen[str]]]:
    """Start a process that holds /dev/nvidia1 of a job, and is none of it."""
    running: list[subprocess.Popen[str]] = []

    def begin(job: Job) -> subprocess.Popen[str]:
        words = ["nsenter", "-t", str(job.pid), "-m", sys.executable, "-c", HOLD]
        running.append(subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert running[-1].stdout is not None and running[-1].stdout.readline() == "ready\n"
        return running[-1]

    yield begin
    for process in running:
        process.communicate()


def fail(job: Job, attempt: int = 1) -> None:
    """Kill rank 0 of an attempt."""
    found = re.search(rf"rank 0 of \d+ attempt {attempt} ready (\d+) on ", job.out.decode())
    assert found
    os.kill(int(found[1]), signal.SIGKILL)


def begun(start: Callable[..., Job], *words: Any, ranks: int = 1) -> Job:
    job = start(["--restart", "group", *words, "-n", str(ranks), *program("again", "wait", 1)])
    job.expect(b" on ", ranks)
    return job


@pytest.mark.parametrize(("where", "ranks"), [([], 1), (TWO, 2)], ids=["local", "two hosts"])
def test_a_device_that_is_held_delays_the_start(devices, start, hold, where, ranks):
    job = begun(start, *where, ranks=ranks)
    holder = hold(job)
    fail(job)
    said = job.expect_error(b"for at most 60 s (--device-wait)").decode()
    assert f"process {holder.pid} (" in said + job.expect_error(b"still holds /dev/nvidia1").decode()
    assert b"attempt 2" not in job.out
    holder.communicate(timeout=BOUND)
    job.expect(b"done", ranks)
    ended = job.end()
    assert ended.code == 0
    assert re.search(rf"process {holder.pid} \(python\S*, user root\) still holds /dev/nvidia1 on ", ended.err)
    assert "all the same" not in ended.err


def test_at_the_limit_the_ranks_are_started_all_the_same(devices, start, hold, tmp_path):
    events = tmp_path / "events"
    job = begun(start, "--device-wait", "0.5", "--events", str(events))
    holder = hold(job)
    fail(job)
    ended = job.end()
    assert ended.code == 0
    said = r"mslaunch: after 0\.5 s \(--device-wait\) the ranks are started all the same: .*\bprocess {} \(python"
    assert re.search(said.format(holder.pid), ended.err)
    told = [json.loads(line) for line in events.read_text().splitlines()]
    held, over = (event["text"] for event in told if event["event"] == "waiting")
    assert f"process {holder.pid}" in held and over == ""


@pytest.mark.parametrize("words", [["--device-wait", "0"], ["--devices", "0"]], ids=["off", "another device"])
def test_nobody_waits_for_what_no_rank_uses(devices, start, hold, words):
    job = begun(start, *words)
    hold(job)
    fail(job)
    ended = job.end()
    assert ended.code == 0
    assert "/dev/nvidia" not in ended.err


def test_ctrl_c_ends_the_wait(devices, start, hold):
    job = begun(start)
    hold(job)
    fail(job)
    job.expect_error(b"still holds /dev/nvidia1")
    job.send(signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    assert "ended by SIGINT" in ended.err and b"attempt 2" not in ended.out
