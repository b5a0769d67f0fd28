"""Claims to ports: ours keep each other off, and those of nobody else count."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mslaunch.agent import port_claims
from mslaunch.agent.port_claims import claim

ROOT = Path(__file__).resolve().parents[3]
PORT = 100_000 + 2 * os.getpid()  # no port: nobody else on this machine, who may run these tests too, claims it
CLAIMS = """\
import sys
from mslaunch.agent.port_claims import claim
sys.stdin.readline()
try:
    held = claim(int(sys.argv[1]))
    print("yes", flush=True)
except OSError:
    print("no", flush=True)
sys.stdin.readline()
"""


def test_a_port_has_one_claim_of_ours() -> None:
    first = claim(PORT)
    with pytest.raises(OSError) as refused:
        claim(PORT)
    assert refused.value.errno == errno.EADDRINUSE
    claim(PORT - 1).close()
    first.close()
    claim(PORT).close()


def test_a_name_that_only_looks_like_a_claim_is_none() -> None:
    """It names another process than the one that has it; or none."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as two,
    ):
        one.bind(f"\0mslaunch port {PORT} {os.getppid()} 0000")
        two.bind(f"\0mslaunch port {PORT} x y")
        claim(PORT).close()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["datagram", "stream"])
def test_a_row_within_a_name_is_no_claim(kind: int) -> None:
    """A name may have line breaks: half a row, or one that says what every user may know of a socket of ours."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as ours,
        socket.socket(socket.AF_UNIX, kind) as half,
        socket.socket(socket.AF_UNIX, kind) as whole,
    ):
        claimed = f"mslaunch port {PORT} {os.getpid()} 0"
        half.bind(f"\0\n@mslaunch port {PORT} \n")
        whole.bind(f"\0\n0: 2 0 0 2 1 {os.fstat(ours.fileno()).st_ino} @{claimed}\n")
        claim(PORT).close()


def test_the_descriptors_of_a_process_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user can name one of our processes that has many descriptors in thousands of names."""
    listings: list[object] = []
    list_names = os.listdir

    def listdir(folder: str) -> list[str]:
        listings.append(folder)
        return list_names(folder)

    monkeypatch.setattr(os, "listdir", listdir)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    with contextlib.ExitStack() as opened:
        for number in range(20):
            name = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            pid = thread.native_id if number % 2 else os.getpid()
            name.bind(f"\0\n0: 2 0 0 2 1 {number} @mslaunch port {PORT} {pid} 0\n")
        claim(PORT).close()
    over.set()
    thread.join()
    assert listings == [f"/proc/{os.getpid()}/fd"]


def fill(name: str) -> list[socket.socket]:
    """Connections to a listener at this abstract name, until it takes no more."""
    made = []
    while True:
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].setblocking(False)
        try:
            made[-1].connect("\0" + name)
        except BlockingIOError:
            return made


def test_a_claim_that_too_many_have_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_claims, "_BACKLOG", 1)
    with contextlib.closing(claim(PORT)) as ours:
        crowd = fill(ours.getsockname()[1:].decode())
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            claim(PORT)
        for one in crowd:
            one.close()


def test_of_many_that_come_at_once_at_most_one_gets_it() -> None:
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMS, str(PORT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(6)
    ]
    for job in jobs:
        assert job.stdin
        job.stdin.write("go\n")
        job.stdin.flush()
    said = [job.stdout.readline() for job in jobs if job.stdout]
    for job in jobs:
        job.communicate("\n", timeout=30)
    assert said.count("yes\n") <= 1 and set(said) <= {"yes\n", "no\n"}
