"""The key store of --horovod: another user of the host, and a host that writes for others' ranks or without end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from other_user import UID, interpreter, python_as

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "launch"), str(ROOT / "tests" / "frameworks")]

from launching import Job, environment, memory_of, wait_until  # noqa: E402

from mslaunch.launcher.job.shared_store import NAMES_EACH  # noqa: E402

HOSTILE = ROOT / "tests" / "hostile" / "hostile_host.py"
MOST = 120  # MiB of the launcher, which takes 20 in an honest launch, and may hold 32 of values
#: a rank that has written, says where the store is, and waits for the end of its input
RANK = """
import os, sys
sys.path.insert(0, sys.argv[1])
import horovod_client
address, port = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]
store = horovod_client.Store(address, port, "global", 0)
store.put("0", b"mine")
"""
WAITS = (
    RANK
    + """
print("ready", os.getpid(), address, flush=True)
sys.stdin.read()
print("has", store.get("0").decode(), flush=True)
"""
)
#: what a stranger tries; prints what he was answered, and what he can read of the rank
TRIES = """
import socket, sys
port, pid = int(sys.argv[1]), sys.argv[2]
def ask(data):
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(data)
        found = b""
        while chunk := sock.recv(4096):
            found += chunk
    return found
for path in ("/global/0", f"/:{port}/global/0", f"/{'0' * 32}:{port}/global/0", f"/../{port}/global/0"):
    for method in ("GET", "PUT", "DELETE"):
        found = ask(f"{method} {path} HTTP/1.1\\r\\nContent-Length: 1\\r\\n\\r\\nx".encode())
        print(found.split()[1].decode(), b"mine" in found)
for name in ("environ", "cmdline"):
    try:
        print(name, open(f"/proc/{pid}/{name}").read().replace("\\0", " "))
    except PermissionError:
        print(name, "is closed")
flood = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(300)]
for sock in flood:
    sock.sendall(b"GET /")
"""


def end_input(job: Job) -> None:
    """The standard input of rank 0 ends."""
    assert job.process.stdin
    job.process.stdin.close()
    job.process.stdin = None


@pytest.mark.usefixtures("second_user")
def test_another_user_learns_and_changes_nothing(tmp_path: Path) -> None:
    words = ["-n", "1", "--horovod", "gloo", interpreter(), "-c", WAITS, str(ROOT / "tests" / "frameworks")]
    job = Job(words, environment(), cwd=tmp_path, stdin=subprocess.PIPE)
    try:
        job.expect(b"\n")
        _, pid, address = job.out.decode().split()
        place, token = address.split("/")
        done = python_as(UID, TRIES, place.rpartition(":")[2], pid)
        lines = done.stdout.decode().splitlines()
        assert lines[:12] == ["403 False"] * 12, (lines, done.stderr)
        assert lines[12] == "environ is closed"
        assert lines[13].startswith("cmdline") and token not in lines[13]
        end_input(job)
        job.expect(b"has mine")
        assert job.end().code == 0
    finally:
        job.destroy()


def test_a_host_writes_for_its_own_ranks_and_not_without_end(tmp_path: Path) -> None:
    forged = [
        "global/0",
        "global/rank_0",
        "global/0!",
        f"local_{os.uname().nodename}/0",
        "cross_0/0",
        "global/2",
        "global/x",
    ]
    env = environment(HOSTILE_ATTACK="store", HOSTILE_WORD=" ".join(forged), HOSTILE_LOG=str(tmp_path / "heard"))
    program = RANK + 'store.wait("1")\nprint("has", store.get("0").decode(), flush=True)\nsys.stdin.read()\n'
    agent = ["--rsh-agent", f"{sys.executable} {HOSTILE}", "--agent-python", sys.executable]
    words = [*agent, "-H", "localhost:1,evil:1", "--horovod", "gloo", sys.executable, "-c", program]
    job = Job([*words, str(ROOT / "tests" / "frameworks")], env, cwd=tmp_path, stdin=subprocess.PIPE)
    try:
        job.expect(b"has mine")
        wait_until(lambda: "answers" in (tmp_path / "heard").read_text())
        memory = memory_of(job.process.pid)
        end_input(job)
        assert job.end().code == 0
    finally:
        job.destroy()
    heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    (answers,) = [line["answers"] for line in heard if line["what"] == "answers"]
    assert answers[: len(forged) + 1] == ["refused"] * len(forged) + ["done"]
    assert answers.count("done") == NAMES_EACH and answers[-1] == "refused"
    assert memory < MOST


def test_the_client_gives_up_where_it_is_refused(tmp_path: Path) -> None:
    """It tries three times, as Horovod's does, and ends: no rank goes on as the only one."""
    program = (
        RANK
        + """
place = address[:-1] + ("0" if address[-1] != "0" else "1")
try:
    horovod_client.Store(place, port, "global", 0).get("0")
except horovod_client.HttpError as error:
    print(error)
"""
    )
    words = ["-n", "1", "--horovod", "gloo", sys.executable, "-c", program, str(ROOT / "tests" / "frameworks")]
    job = Job(words, environment(), cwd=tmp_path, stdin=subprocess.PIPE)
    try:
        ended = job.end()
        assert (ended.code, ended.out) == (0, b"GET 0\n"), ended.err
    finally:
        job.destroy()
