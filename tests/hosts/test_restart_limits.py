"""When --restart group waits, leaves a host out, or makes no other attempt: on real hosts, through SSH.

Rank 0 is on n01 and rank 1 on n02; n03 is a spare.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters import BOUND, MARKS, Cluster, Job, wait_until

pytestmark = MARKS
HOSTS = "n01 slots=1\nn02 slots=1\nn03 slots=1 spare\n"
#: rank 1 does what $1 says, in each attempt; the other waits
SCRIPT = 'echo "attempt $MSLAUNCH_ATTEMPT rank $RANK on $(hostname)"; [ $RANK = 1 ] || exec sleep 1001; eval "$1"'
#: a /dev with a device of Ascend, seen by this host alone
DEVICES = """
    mkdir /run/real /run/dev && mount --rbind /dev /run/real
    for name in null zero urandom random tty ptmx pts shm fd; do ln -sfn /run/real/$name /run/dev/$name; done
    touch /run/dev/davinci0 && mount --rbind /run/dev /dev
"""


@pytest.fixture
def launch(start: Callable[..., Job], tmp_path: Path) -> Callable[..., Job]:
    (tmp_path / "hosts").write_text(HOSTS)

    def begin(work: str, *words: object) -> Job:
        return start("--restart", "group", *words, "--hostfile", "hosts", "-n", 2, "sh", "-c", SCRIPT, "sh", work)

    return begin


def second_host(out: bytes) -> list[str]:
    """Where rank 1 was, in each attempt."""
    found = re.findall(r"attempt (\d+) rank 1 on (\S+)", out.decode())
    return [host for _, host in sorted(found)]


@contextmanager
def held(cluster: Cluster, host: str) -> Iterator[subprocess.Popen[str]]:
    """A process there that holds its device, until its input ends."""
    words = cluster.command("exec", host, "sh", "-c", "exec 3< /dev/davinci0; echo ready; read line")
    with subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process


def test_a_host_that_failed_twice_is_left_out(launch):
    ended = launch("[ $MSLAUNCH_ATTEMPT = 3 ] || kill -KILL $$; exit 7", "--max-restarts", 2).end()
    assert ended.code == 7, ended.err
    assert second_host(ended.out) == ["n02", "n02", "n03"]
    assert "n02 has failed twice within 10 minutes, and is left out while another spare is there" in ended.err
    assert "attempt 3 of 3: n03 takes the place of n02" in ended.err


def test_a_job_that_dies_at_the_same_step(launch, tmp_path):
    (tmp_path / "ckpt").mkdir()
    ended = launch("[ $MSLAUNCH_ATTEMPT != 1 ] || touch ckpt/step1; exit 3", "--progress-file", "ckpt",
                   "--max-no-progress", 2, "--max-restarts", 9).end()  # fmt: skip
    assert ended.code == 93, ended.err
    assert second_host(ended.out) == ["n02"] * 3, "an exit code is not the fault of a host"
    assert "not started again: ckpt has not changed in 2 attempts (--max-no-progress)" in ended.err


def test_a_device_that_is_held_there_is_waited_for(launch, four, tmp_path):
    four.on("n02", DEVICES)
    try:
        os.mkfifo(tmp_path / "wait")
        job = launch("[ $MSLAUNCH_ATTEMPT = 2 ] && exit 7; read line < wait; exit 3", "--max-restarts", 1)
        job.expect(b"attempt 1 rank 1 on n02")
        with held(four, "n02") as holder:
            (tmp_path / "wait").write_text("\n")
            said = job.process.stderr
            assert said is not None
            line = b""
            while b"still holds" not in line:
                line = said.readline()
                assert line, "the end came first"
            assert re.search(rb"process \d+ \(sh, user root\) still holds /dev/davinci0 on n02", line)
            assert b"attempt 2" not in job.out
            holder.communicate("\n", timeout=BOUND)
        ended = job.end()
        assert (ended.code, second_host(ended.out)) == (7, ["n02", "n02"])
    finally:
        wait_until(lambda: not four.processes("n02"))
        four.on("n02", "umount -l /dev && umount -l /run/real && rm -r /run/dev /run/real")
