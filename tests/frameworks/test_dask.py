"""The recipe for Dask in docs/frameworks.md: a scheduler, workers and a program, as the programs of one launch."""

from __future__ import annotations

from pathlib import Path

from clusters import Cluster
from framework_jobs import DASK, NEEDS_DASK, launch, launch_from_head, with_hosts

pytestmark = NEEDS_DASK
#: waits for all workers, computes on them, and ends the cluster
PROGRAM = """
import sys
from dask.distributed import Client

client = Client(sys.argv[1])
client.wait_for_workers(int(sys.argv[2]))
hosts = {worker["host"] for worker in client.scheduler_info(-1)["workers"].values()}
print("sum", client.submit(sum, range(10)).result(), "on", len(hosts), "host(s)", flush=True)
client.shutdown()
"""
SCHEDULER = [DASK, "-m", "dask", "scheduler", "--port", "{master_port}", "--no-dashboard"]
WORKER = [DASK, "-m", "dask", "worker", "tcp://{master_addr}:{master_port}", "--no-nanny", "--no-dashboard"]
CLIENT = [DASK, "-c", PROGRAM, "tcp://{master_addr}:{master_port}"]


def test_scheduler_workers_and_program_on_this_host(tmp_path: Path) -> None:
    done = launch("-n", 1, "--fill", *SCHEDULER, ":", "-n", 2, *WORKER, ":", "-n", 1, *CLIENT, 2, directory=tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["sum 45 on 1 host(s)"]), done.stderr


@with_hosts
def test_workers_on_two_hosts(two_hosts: Cluster, tmp_path: Path) -> None:
    words = ["--fill", "-H", "n01:2", "-n", 1, *SCHEDULER, ":", "-H", "n01:2", "-n", 1, *WORKER]
    words += [":", "-H", "n02:2", "-n", 1, *WORKER, ":", "-H", "n02:2", "-n", 1, *CLIENT, 2]
    done = launch_from_head(two_hosts, *words, directory=tmp_path)
    assert (done.code, done.out.decode().splitlines()) == (0, ["sum 45 on 2 host(s)"]), done.err
