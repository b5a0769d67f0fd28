"""Ranks of a Horovod without MPI find each other: launches with its client, as horovod_client.py plays it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BOUND, Job, environment, through_rsh

CLIENT = Path(__file__).parents[1] / "frameworks" / "horovod_client.py"
SHOW = ["sh", "-c", "env | grep ^HOROVOD_ | sort"]
#: the listening sockets of this machine with the port of the store (proc(5), net/tcp)
LISTENS = """
import os, socket
port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
rows = [line.split() for name in ("tcp", "tcp6") for line in list(open(f"/proc/net/{name}"))[1:]]
found = [row[1] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]
os.write(1, (" ".join(found) + "\\n").encode())
"""


def launch(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "mslaunch", "--oversubscribe", *map(str, words)]
    env = {**environment(), **more}
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=BOUND, check=False)


def found(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_ranks_of_one_host_meet_and_meet_again() -> None:
    done = launch("-n", 3, "--horovod", "gloo", sys.executable, CLIENT, 2)
    rows = [f"{rank} of [0, 1, 2] [0, 1, 2] [{rank}]" for rank in range(3)]
    assert found(done) == [f"{again}: {row}" for again in range(2) for row in rows]


def test_ranks_of_three_hosts() -> None:
    """Of unequal sizes, so that not every host has a rank with each local rank; their ranks are not in blocks."""
    hosts = through_rsh("localhost:1", "h1:2", "h2:3")
    done = launch(*hosts, "--map-by", "node", "--horovod", "gloo", sys.executable, CLIENT)
    local = {0: [0], 1: [1, 3], 2: [2, 4, 5]}
    cross = {0: [0, 1, 2], 3: [3, 4], 5: [5]}
    rows = []
    for rank in range(6):
        mine = next(ranks for ranks in local.values() if rank in ranks)
        alike = next(ranks for ranks in cross.values() if rank in ranks)
        rows.append(f"0: {rank} of [0, 1, 2, 3, 4, 5] {mine} {alike}")
    assert found(done) == rows


def test_one_rank() -> None:
    assert found(launch("-n", 1, "--horovod", "gloo", sys.executable, CLIENT)) == ["0: 0 of [0] [0] [0]"]


def test_variables_of_a_rank() -> None:
    rows = dict(line.split("=", 1) for line in found(launch("-n", 1, "--horovod", "gloo", *SHOW)))
    address, port = rows.pop("HOROVOD_GLOO_RENDEZVOUS_ADDR"), rows.pop("HOROVOD_GLOO_RENDEZVOUS_PORT")
    assert re.fullmatch(rf"127\.0\.0\.1:{port}/[0-9a-f]{{32}}", address)
    assert rows.pop("HOROVOD_HOSTNAME")
    assert rows == {
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_RANK": "0", "HOROVOD_SIZE": "1", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1",
    }  # fmt: skip


def test_an_interface_of_the_users_own_is_kept() -> None:
    hosts = through_rsh("localhost:1", "h1:1")
    show = ["sh", "-c", "echo $RANK $HOROVOD_GLOO_IFACE"]
    assert found(launch(*hosts, "--horovod", "gloo", *show, HOROVOD_GLOO_IFACE="ib7")) == ["0 ib7", "1 ib7"]
    words = ["-x", "HOROVOD_GLOO_IFACE=ib8", "--horovod", "gloo", *show]
    assert found(launch(*hosts, *words, HOROVOD_GLOO_IFACE="ib7")) == ["0 ib8", "1 ib8"]


def test_without_the_option_nothing_is_set_or_left() -> None:
    """What horovodrun has set around this launch is not that of its ranks; what tunes Horovod is."""
    around = {"HOROVOD_RANK": "5", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1", "HOROVOD_FUSION_THRESHOLD": "1"}
    done = launch("-n", 1, *SHOW, **around)
    assert found(done) == ["HOROVOD_FUSION_THRESHOLD=1"]


def test_nothing_listens_on_a_network() -> None:
    done = launch("-n", 2, "--horovod", "gloo", sys.executable, "-c", LISTENS)
    lines = set(found(done))
    assert len(lines) == 1
    assert re.fullmatch(r"0100007F:[0-9A-F]{4}", lines.pop()), "127.0.0.1 alone"


def test_hosts_have_tokens_of_their_own() -> None:
    hosts = through_rsh("localhost:2", "h1:1")
    done = launch(*hosts, "--horovod", "gloo", "sh", "-c", "echo $RANK $HOROVOD_GLOO_RENDEZVOUS_ADDR")
    first, second, other = [line.split("/")[1] for line in found(done)]
    assert first == second != other


def test_a_new_attempt_has_a_new_store() -> None:
    """The first fails when all have written, and none has said that it is done."""
    program = f"""
import os, sys
sys.path.insert(0, {str(CLIENT.parent)!r})
import horovod_client
attempt = os.environ["MSLAUNCH_ATTEMPT"]
if attempt == "1":
    place = [os.environ[f"HOROVOD_GLOO_RENDEZVOUS_{{end}}"] for end in ("ADDR", "PORT")]
    store = horovod_client.Store(*place, "global", 0)
    rank = os.environ["HOROVOD_RANK"]
    store.put(rank, b"of the first attempt")
    store.wait(str(1 - int(rank)))
    sys.exit(3)
met = " ".join(map(str, horovod_client.initialize()))
os.write(1, f"{{attempt}} {{met}}\\n".encode())
"""
    done = launch("-n", 2, "--restart", "group", "--horovod", "gloo", sys.executable, "-c", program)
    assert found(done) == ["2 [0, 1] [0, 1] [0]", "2 [0, 1] [0, 1] [1]"]


def test_a_rank_that_fails_ends_those_that_wait_for_it() -> None:
    words = ["-n", "2", "--oversubscribe", "--horovod", "gloo", "sh", "-c"]
    job = Job([*words, f'test $RANK = 1 && exit 7; exec "$0" {CLIENT}', sys.executable], environment())
    ended = job.end()
    assert ended.code == 7
    job.wait_gone()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--horovod", "x"], "--horovod: expected gloo, got 'x'"),
        (["--horovod", "gloo", "-n", "0"], "-n: expected a whole number, 1 or more, got '0'"),
        (["--horovod", "gloo", "--backend", "openmpi"], "--horovod: not with --backend openmpi: mpirun serves"),
        (["--horovod", "gloo", "--max-restarts", "2"], "a rank of Horovod that is started again alone does not find"),
    ],
)  # fmt: skip
def test_what_cannot_be_done(words: list[str], said: str, tmp_path: Path) -> None:
    done = launch("-n", 2, *words, "touch", tmp_path / "ran")
    assert done.returncode != 0 and said in done.stderr and not (tmp_path / "ran").exists()
    assert len(done.stderr.splitlines()) <= 2, done.stderr


def test_a_launcher_on_each_host_is_refused() -> None:
    line = ["--dialect", "torchrun", "--horovod", "gloo", "--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1"]
    words = [sys.executable, "-m", "mslaunch", *map(str, line), "--no-python", "true"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode != 0
    assert "--horovod gloo: each of several launchers would serve a store of its own" in done.stderr
