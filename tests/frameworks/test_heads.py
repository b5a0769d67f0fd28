"""--ready with the lines of docs/frameworks.md for Ray, vLLM and SGLang: a head first, then those that need it.

MSLAUNCH_TEST_RAY_PYTHON names a Python with ray; its `ray` is beside it.  The stand-ins do at the port what these do:

- Ray: `ray start --head --block` starts gcs_server as a child, which listens, and stays; without --block it ends, and
  gcs_server goes on (ray/scripts/scripts.py and ray/_private/services.py, 2.60.0).  `ray start --address` calls it.
- vLLM binds the port before it loads the model, and listens afterwards (setup_server in
  vllm/entrypoints/openai/api_server.py: bind alone; uvicorn listens, in serve_http of vllm/entrypoints/launcher.py).
- SGLang starts its processes first, and binds and listens in uvicorn.run (launch_server in
  python/sglang/srt/entrypoints/http_server.py).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import Cluster
from framework_jobs import SECONDS, launch, launch_from_head, on_demand, with_hosts

RAY, NEEDS_RAY = on_demand("MSLAUNCH_TEST_RAY_PYTHON", "ray")
pytestmark = pytest.mark.limit(SECONDS + 20)

#: both: the arguments are what is played, an address, and how many are served before it ends
HEADS = """
import os, signal, socket, sys, threading

who, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
host, _, port = address.rpartition(":")
load = threading.Event().wait  # so many seconds: the time of a model

def serve(server):
    for number in range(count):
        client = server.accept()[0]
        client.sendall(b"served by %s" % who.encode())
        client.close()

if who == "vllm":
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", int(port)))
    load(0.3)
    server.listen(2048)
    serve(server)
elif who == "sglang":
    load(0.3)
    serve(socket.create_server(("", int(port))))
else:
    child = os.fork()
    if not child:
        os.setsid()
        load(0.3)
        serve(socket.create_server(("", int(port))))
        os._exit(0)
    if who == "ray --block":
        os.waitpid(child, 0)
"""
#: calls once: who comes too early fails
CALLER = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os, socket, sys

host, _, port = sys.argv[1].rpartition(":")
with socket.create_connection((host, int(port)), timeout=20) as server:
    print("rank", os.environ["RANK"], server.recv(99).decode(), flush=True)
"""
ADDRESS = "{master_addr}:{master_port}"


def line(who: str, head: list[str], rest: list[str], callers: int) -> list[object]:
    """HEAD, and as many that call it; both with options of their own."""
    words: list[object] = ["--fill", "--ready-timeout", 30, *head, "-n", 1, "--ready", "{master_port}"]
    words += [sys.executable, "-c", HEADS, who, ADDRESS, callers]
    return [*words, ":", *rest, "-n", callers, sys.executable, "-c", CALLER, ADDRESS]


@pytest.mark.parametrize("who", ["ray --block", "vllm", "sglang"])
def test_callers_find_the_head(who: str, tmp_path: Path) -> None:
    done = launch(*line(who, [], [], 2), directory=tmp_path)
    expected = [f"rank {rank} served by {who}" for rank in (1, 2)]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected), done.stderr


@with_hosts
def test_callers_on_another_host_find_the_head(two_hosts: Cluster, tmp_path: Path) -> None:
    words = line("vllm", ["-H", "n01:2"], ["-H", "n02:2"], 2)
    done = launch_from_head(two_hosts, *words, directory=tmp_path)
    expected = [f"rank {rank} served by vllm" for rank in (1, 2)]
    assert (done.code, sorted(done.out.decode().splitlines())) == (0, expected), done.err


def test_a_head_in_the_background_is_told_to_stay(tmp_path: Path) -> None:
    done = launch(*line("ray", [], [], 1), directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert ", for whose port " in done.stderr and "ray start needs --block" in done.stderr


DRIVER = """
import sys, time
import ray

ray.init(address=sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.2)
double = ray.remote(lambda number: 2 * number)
print("nodes", len(ray.nodes()), "sum", sum(ray.get([double.remote(number) for number in range(4)])), flush=True)
"""


@NEEDS_RAY
def test_ray_itself(tmp_path: Path) -> None:
    """A head, a worker and a driver; a cluster of Ray stays, so the job is ended as Ctrl-C would."""
    start = [str(Path(RAY).parent / "ray"), "start", "--block", "--num-cpus", "1"]
    address = (
        "{master_addr}:6399"  # not MASTER_PORT: ray keeps 10002 to 19999 for its workers, and refuses a port there
    )
    words = ["--fill", "--timeout", SECONDS, "-n", 1, "--ready", 6399, *start, "--head", "--port", 6399,
             "--include-dashboard", "false", ":", "-n", 1, *start, "--address", address,
             ":", "-n", 1, RAY, "-c", DRIVER, address]  # fmt: skip
    command = [sys.executable, "-m", "mslaunch", *map(str, words)]
    said = (tmp_path / "stderr").open("w+")
    with said, subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=said, text=True) as job:
        assert job.stdout
        found = next((line for line in job.stdout if line.startswith("nodes ")), "")
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=SECONDS)
        said.seek(0)
        assert (found, job.returncode) == ("nodes 2 sum 12\n", 1), said.read()
