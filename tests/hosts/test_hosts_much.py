"""Much of everything through real links: output, slow readers, delay, hosts."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path

import pytest
from clusters import MARKS, RING, cluster_of, names_of, wait_until

pytestmark = MARKS

# Writes argv[1] MiB that differ in every block and between ranks, and says their digest in a file of its own.
FLOOD = """
import hashlib, os, sys
digest = hashlib.sha256()
rank = os.environ["OMPI_COMM_WORLD_RANK"]
block = hashlib.sha512(rank.encode()).digest() * 16384
for number in range(int(sys.argv[1])):
    piece = b"%8d" % number + block[8:]
    digest.update(piece)
    while piece:
        piece = piece[os.write(1, piece):]
    with open("written." + rank, "w") as file:
        file.write(str(number + 1))
with open("digest." + rank, "w") as file:
    file.write(digest.hexdigest())
"""


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def memory_of(pid):
    """The most that a process ever had, in MiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) >> 10


@pytest.mark.slow
def test_300_megabytes_from_two_hosts_arrive_intact(run, tmp_path):
    logs = tmp_path / "logs"
    ended = run(
        "-H", "n01,n02", "--output-filename", f"{logs}:nocopy", "python3", "-c", FLOOD, 150, bound=100
    )  # fmt: skip
    assert (ended.code, ended.out, ended.err) == (0, b"", "")
    for rank in range(2):
        path = logs / "1" / f"rank.{rank}" / "stdout"
        assert path.stat().st_size == 150 << 20
        assert digest(path) == (tmp_path / f"digest.{rank}").read_text()


def written(folder):
    try:
        return int((folder / "written.0").read_text() or 0)
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_a_reader_that_waits_stops_a_rank_on_another_host(start, tmp_path):
    size = 100
    job = start("-H", "n02", "python3", "-c", FLOOD, size)
    wait_until(lambda: written(tmp_path) > 0)
    last, since = 0, time.monotonic()
    while time.monotonic() - since < 1.0:  # silence is what is waited for
        if written(tmp_path) != last:
            last, since = written(tmp_path), time.monotonic()
        time.sleep(0.02)
    assert last < 20, "the rank was not stopped"
    assert memory_of(job.launcher) < 150
    found, count = hashlib.sha256(), 0
    while data := os.read(job.process.stdout.fileno(), 1 << 20):
        found.update(data)
        count += len(data)
    assert job.end().code == 0
    assert count == size << 20
    assert found.hexdigest() == (tmp_path / "digest.0").read_text()


def test_a_reader_that_waits_does_not_keep_the_job_from_being_ended(start, four, tmp_path):
    job = start("-H", "n01,n02", "python3", "-c", FLOOD, 1000)
    wait_until(lambda: written(tmp_path) > 0)
    began = time.monotonic()
    job.process.terminate()
    for host in ("n01", "n02"):
        wait_until(lambda host=host: not any("hashlib" in words for words in four.processes(host).values()), 10)
    assert job.end().code == 1
    assert time.monotonic() - began < 20


def test_a_launch_over_slow_lines(tmp_path):
    """20 ms one way."""
    with cluster_of(8, tmp_path / "c", "--delay", 20) as cluster:
        job = cluster.start("-H", "n[01-08]", "-N", 1, "hostname", cwd=tmp_path)
        try:
            ended = job.end()
        finally:
            job.destroy()
        assert (ended.code, ended.lines, ended.err) == (0, names_of(8), "")
        cluster.wait_quiet(8)


def test_thirty_two_hosts(tmp_path):
    with cluster_of(32, tmp_path / "c") as cluster:
        for words, expected in ((("hostname",), names_of(32)), (("--tag-output", "python3", RING), None)):
            job = cluster.start("--connect-timeout", 60, "-H", "n[01-32]", "-N", 1, *words, cwd=tmp_path)
            try:
                ended = job.end(60)
            finally:
                job.destroy()
            assert (ended.code, ended.err) == (0, "")
            assert expected is None or ended.lines == expected
            assert expected or ended.out.count(b", ok\n") == 32
        cluster.wait_quiet(32)


def test_many_ranks_for_each_host(run):
    ended = run("-H", "n01:64,n02:64", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)")
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.lines) == sorted(f"{rank} {'n01' if rank < 64 else 'n02'}" for rank in range(128))
