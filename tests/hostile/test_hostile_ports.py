"""Ports that a job holds: neither another local user nor a host that is not of the job can take them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from other_user import UID, python_as

sys.path.append(str(Path(__file__).resolve().parents[1] / "launch"))
from launching import Job, environment

pytestmark = pytest.mark.usefixtures("second_user")

#: a rank of a program that may be MindSpore's, though nobody knows: it says where the scheduler is, and connects to it
#: when it is told to, as its own user
RANK = """\
import os, socket, sys
address, port = os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])
print(f"at {address} {port} meet {os.environ['MASTER_PORT']} .", flush=True)
for line in sys.stdin:
    try:
        with socket.create_connection((address, port), 10) as connection:
            connection.settimeout(10)
            print("read", connection.recv(1), flush=True)
    except OSError as error:
        print("error", error.strerror, flush=True)
    print("tried", flush=True)
"""
#: knocks, and takes the port in the moment in which its holder gives it up
KNOCK = """\
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
knocks = []  # one that is closed at once cannot be told from one of ours, counts as little, and is not reported
for count in range(50):
    try:
        knocks.append(socket.create_connection((address, port), 5))
    except OSError:
        pass
    for host in ("", address, "127.0.0.1"):
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                thief.bind((host, port))
                thief.listen()
            except OSError:
                continue
            print("taken after", count)
            sys.exit()
print("held")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start the command; no process of it may be left."""
    jobs: list[Job] = []

    def begin(*words: str, **how: object) -> Job:
        jobs.append(Job(list(words), environment(), **{"cwd": tmp_path, "stdin": -1, **how}))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.destroy()


def started(job: Job) -> tuple[str, str, str]:
    """Address and port of the scheduler, and MASTER_PORT."""
    said = job.expect(b" .\n").decode()
    found = re.search(r"at (\S+) (\d+) meet (\d+) \.", said)
    assert found
    return found[1], found[2], found[3]


def again(job: Job) -> None:
    """The rank connects, as its own user."""
    assert job.process.stdin
    before = job.out.count(b"tried")
    job.process.stdin.write(b"go\n")
    job.process.stdin.flush()
    job.expect(b"tried", before + 1)


def test_another_user_cannot_take_the_port_of_the_scheduler(start: Callable[..., Job]) -> None:
    job = start("-n", "1", sys.executable, "-c", RANK)
    address, port, _ = started(job)
    attack = python_as(UID, KNOCK, address, port)
    assert attack.stdout == b"held\n", attack
    again(job)
    assert b"error Connection reset" in job.out, (
        "a rank is noticed: it is to try again, for the scheduler is about to come"
    )
    assert python_as(UID, KNOCK, address, port).stdout == b"held\n", (
        "there is no MindSpore, so the port is never given up"
    )
    ended = job.end()
    assert ended.code == 0
    (notice,) = [line for line in ended.err.splitlines() if "refused" in line]
    assert f"port {port} is kept" in notice and f"a connection of user {UID} was refused" in notice


def test_a_job_on_one_host_listens_at_loopback(start: Callable[..., Job]) -> None:
    """Only the scheduler's port, and nothing while it is prepared."""
    job = start("-n", "1", sys.executable, "-c", RANK)
    address, port, meet = started(job)
    listening = [
        (local, uid)
        for name in ("tcp", "tcp6")
        for local, uid in listeners(name)
        if local.endswith((f":{int(port):04X}", f":{int(meet):04X}"))
    ]
    assert (address, listening) == ("127.0.0.1", [(f"0100007F:{int(port):04X}", "0")])
    assert job.end().code == 0


def listeners(name: str) -> list[tuple[str, str]]:
    rows = [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [(row[1], row[7]) for row in rows if row[3] == "0A"]


def test_nothing_is_held_for_a_program_that_cannot_be_mindspores(start: Callable[..., Job]) -> None:
    """`cat` neither is a Python nor can it start one."""
    job = start("-n", "1", "cat")
    assert job.process.stdin
    job.process.stdin.write(b"here\n")
    job.process.stdin.flush()
    job.expect(b"here\n")
    (rank,) = [pid for pid, words in job.left().items() if words.startswith("cat")]
    port = re.search(rb"MS_SCHED_PORT=(\d+)", Path(f"/proc/{rank}/environ").read_bytes())
    assert port
    held = [local for name in ("tcp", "tcp6") for local, _ in listeners(name)]
    assert not [local for local in held if local.endswith(f":{int(port[1]):04X}")]
    assert job.end().code == 0
