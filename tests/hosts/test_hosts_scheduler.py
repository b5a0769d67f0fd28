"""MindSpore's scheduler on real hosts: its host, the address that ranks get, and a port that is taken there."""

from __future__ import annotations

import re
import subprocess

import pytest
from clusters import MARKS

pytestmark = MARKS
MEET = ("sh", "-c", "echo $RANK $(hostname) $MASTER_ADDR $MS_SCHED_HOST $NODE_RANK $OMPI_MCA_orte_num_nodes")
HOLD = "import socket, sys; s = socket.create_server(('', 8118)); print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("where", "address"),
    [
        ((), "10.77.1.1"),
        (("--scheduler", "n01"), "10.77.1.1"),
        (("--scheduler", "n02"), "10.77.1.2"),
        (("--scheduler", "n03:8118"), "10.77.1.3"),
        (("--scheduler", "root@10.77.1.4"), "10.77.1.4"),
        (("--scheduler", "head"), "10.77.0.1"),
    ],
    ids=str,
)
def test_ranks_get_its_address(run, where, address):
    """It may be on a host without ranks, which counts for nothing else then."""
    ended = run("-H", "n01:2,n02:1", *where, *MEET)
    assert (ended.code, ended.err) == (0, "")
    hosts = ["n01 10.77.1.1 {} 0 2", "n01 10.77.1.1 {} 0 2", "n02 10.77.1.1 {} 1 2"]
    assert ended.lines == [f"{rank} {text.format(address)}" for rank, text in enumerate(hosts)]


def test_a_host_without_ranks_that_cannot_be_reached_is_a_refusal(run):
    ended = run("-H", "n01,n02", "--scheduler", "n99", "true")
    assert ended.code and "n99" in ended.err and "nothing was started" in ended.err


@pytest.mark.parametrize("hosts", ["n01,n02", "n03,n01"])
def test_a_port_that_is_taken_there_is_said_before_anything_runs(start, four, hosts, tmp_path):
    command = four.command("exec", "n03", "python3", "-c", HOLD)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        ended = start("-H", hosts, "--scheduler", "n03:8118", "touch", tmp_path / "ran").end()
    assert ended.code and "port 8118 is taken" in ended.err and "on n03" in ended.err
    assert "--scheduler HOST:PORT" in ended.err and not (tmp_path / "ran").exists()


#: a rank that connects to the scheduler's port when it is told to, and says what it read
CONNECTS = """\
import os, socket, sys
address = os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])
os.write(1, f"at {address[0]} {address[1]} -\\n".encode())
for line in sys.stdin:
    try:  # it may be reset before connect() has returned
        with socket.create_connection(address, 10) as connection:
            print("said", connection.recv(1), flush=True)
    except ConnectionError:
        print("said reset", flush=True)
"""
STRANGER = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10); print(s.recv(1))"


def test_only_hosts_of_the_job_may_wake_the_scheduler(start, four):
    """A host that has no part in the job is turned away, at any address of the host, and named once."""
    job = start("-H", "n01,n02", "--stdin", 1, "python3", "-c", CONNECTS, stdin=subprocess.PIPE)
    job.expect(b" -\n", 2)
    port = re.search(rb"at 10.77.1.1 (\d+) -", job.out)
    assert port
    for address in ("10.77.1.1", "10.77.1.1"):
        said = subprocess.run(
            four.command("exec", "n03", "python3", "-c", STRANGER, address, port[1].decode()),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert "ConnectionResetError" in said.stderr
    job.process.stdin.write(b"go\n")
    job.process.stdin.flush()
    job.expect(b"said reset")
    ended = job.end()
    refused = [line for line in ended.err.splitlines() if "refused" in line]
    assert (ended.code, len(refused)) == (0, 1)
    assert refused[0].startswith("mslaunch: n01: port ") and refused[0].endswith(
        "a connection of 10.77.1.3 was refused"
    )
