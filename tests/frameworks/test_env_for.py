"""--env-for: an address of its own for each rank, as TF_CONFIG and Paddle's variables tell it.

MSLAUNCH_TEST_TENSORFLOW_PYTHON names a Python with tensorflow-cpu, MSLAUNCH_TEST_PADDLE_PYTHON one with paddlepaddle.
A stand-in does what both do first: each rank serves at the address that is its own, and calls all others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from clusters import Cluster
from framework_jobs import SECONDS, launch, launch_from_head, on_demand, with_hosts

TENSORFLOW, NEEDS_TENSORFLOW = on_demand("MSLAUNCH_TEST_TENSORFLOW_PYTHON", "tensorflow-cpu")
PADDLE, NEEDS_PADDLE = on_demand("MSLAUNCH_TEST_PADDLE_PYTHON", "paddlepaddle")
pytestmark = pytest.mark.limit(SECONDS + 20)

SERVER = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import json, os, socket, time

config = json.loads(os.environ["TF_CONFIG"])
places = config["cluster"]["worker"]
own = config["task"]["index"]
assert config["task"]["type"] == "worker" and own == int(os.environ["RANK"])
assert os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",") == places
assert os.environ["PADDLE_CURRENT_ENDPOINT"] == places[int(os.environ["PADDLE_TRAINER_ID"])] == places[own]

server = socket.create_server(("", int(places[own].rpartition(":")[2])))
for place in places:
    address, _, port = place.rpartition(":")
    for _ in range(2000):
        try:
            socket.create_connection((address.strip("[]"), int(port))).sendall(str(own).encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
heard = []
for _ in places:
    client = server.accept()[0]
    heard.append(int(client.recv(9)))
print("rank", own, "of", len(places), "heard", *sorted(heard), flush=True)
"""
REDUCE = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def reduced():
    context = tf.distribute.get_replica_context()
    value = tf.cast(context.replica_id_in_sync_group, tf.float32)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


total = float(strategy.experimental_local_results(strategy.run(reduced))[0])
print("replicas", strategy.num_replicas_in_sync, "sum", total, flush=True)
"""
PADDLE_REDUCE = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import paddle
import paddle.distributed as dist

dist.init_parallel_env()
value = paddle.to_tensor([float(dist.get_rank())])
dist.all_reduce(value)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", value.item(), flush=True)
"""
GLOO = ("-x", "PADDLE_DISTRI_BACKEND=gloo")  # as Paddle's own launcher says where there is no device


def heard(size: int) -> list[str]:
    return [f"rank {rank} of {size} heard {' '.join(map(str, range(size)))}" for rank in range(size)]


def test_every_rank_of_this_host_serves_at_an_address_of_its_own(tmp_path: Path) -> None:
    done = launch("-n", 3, "--env-for", "tf,paddle", sys.executable, "-c", SERVER, directory=tmp_path)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, heard(3)), done.stderr


@with_hosts
def test_ranks_of_two_hosts_reach_each_other(two_hosts: Cluster, tmp_path: Path) -> None:
    words = ["-H", "n01:2,n02:2", "--env-for", "tf,paddle", sys.executable, "-c", SERVER]
    done = launch_from_head(two_hosts, *words, directory=tmp_path)
    assert (done.code, sorted(done.out.decode().splitlines())) == (0, heard(4)), done.err


@with_hosts
def test_the_host_of_rank_0_and_its_services_are_not_mistaken_for_ranks(two_hosts: Cluster, tmp_path: Path) -> None:
    """The scheduler's host is that of no rank here, and the ports that ranks get are not the scheduler's."""
    script = 'echo "$MASTER_ADDR $MS_SCHED_HOST:$MS_SCHED_PORT $PADDLE_CURRENT_ENDPOINT"'
    words = ["-H", "n02:2", "--env-for", "paddle", "--scheduler", "n01:8119", "sh", "-c", script]
    done = launch_from_head(two_hosts, *words, directory=tmp_path)
    rows = [line.split() for line in done.out.decode().splitlines()]
    assert (done.code, len({own for _, _, own in rows})) == (0, 2), done.err
    for master, scheduler, own in rows:
        assert own.rpartition(":")[0] == master != scheduler.rpartition(":")[0] and scheduler.endswith(":8119")


def test_without_the_option_nothing_is_said_to_tensorflow(tmp_path: Path) -> None:
    done = launch("-n", 1, "printenv", "TF_CONFIG", directory=tmp_path)
    assert done.stdout == "" and "exit code 1" in done.stderr


def test_a_config_of_the_users_own_is_stronger(tmp_path: Path) -> None:
    own = json.dumps({"cluster": {"worker": ["elsewhere:1"]}, "task": {"type": "worker", "index": 0}})
    done = launch("-n", 1, "--env-for", "tf", "-x", f"TF_CONFIG={own}", "printenv", "TF_CONFIG", directory=tmp_path)
    assert done.stdout.strip() == own


def test_each_attempt_has_ports_of_its_own(tmp_path: Path) -> None:
    script = 'echo "$PADDLE_CURRENT_ENDPOINT"; test "$MSLAUNCH_ATTEMPT" = 2'
    words = ["-n", 1, "--restart", "group", "--max-restarts", 1, "--env-for", "paddle", "sh", "-c", script]
    done = launch(*words, directory=tmp_path)
    assert done.returncode == 0 and len(set(done.stdout.splitlines())) == 2, done.stderr


@NEEDS_TENSORFLOW
def test_tensorflow_reduces_over_ranks_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "reduce.py").write_text(REDUCE)
    done = launch("-n", 2, "--env-for", "tf", TENSORFLOW, "reduce.py", directory=tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["replicas 2 sum 1.0"] * 2), done.stderr


@NEEDS_TENSORFLOW
@with_hosts
def test_tensorflow_reduces_over_two_hosts(two_hosts: Cluster, tmp_path: Path) -> None:
    (tmp_path / "reduce.py").write_text(REDUCE)
    words = ["-H", "n01:1,n02:2", "--env-for", "tf", TENSORFLOW, "reduce.py"]
    done = launch_from_head(two_hosts, *words, directory=tmp_path)
    assert (done.code, done.out.decode().splitlines()) == (0, ["replicas 3 sum 3.0"] * 3), done.err


@NEEDS_PADDLE
def test_paddle_reduces_over_ranks_of_this_host(tmp_path: Path) -> None:
    done = launch("-n", 2, "--env-for", "paddle", *GLOO, PADDLE, "-c", PADDLE_REDUCE, directory=tmp_path)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, paddle_lines(2, 1.0)), done.stderr


@NEEDS_PADDLE
@with_hosts
def test_paddle_reduces_over_two_hosts(two_hosts: Cluster, tmp_path: Path) -> None:
    words = ["-H", "n01:1,n02:2", "--env-for", "paddle", *GLOO, PADDLE, "-c", PADDLE_REDUCE]
    done = launch_from_head(two_hosts, *words, directory=tmp_path)
    assert (done.code, sorted(done.out.decode().splitlines())) == (0, paddle_lines(3, 3.0)), done.err


def paddle_lines(size: int, total: float) -> list[str]:
    return [f"rank {rank} of {size} sum {total}" for rank in range(size)]
