"""The real Horovod, built with Gloo alone, on one host and two; its client as horovod_client.py plays it on two.

HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_PYTORCH=1 pip install --no-build-isolation horovod makes one; it
takes a quarter of an hour and the headers of torch, so it is tested on demand.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from clusters import Cluster
from framework_jobs import EXAMPLES, SECONDS, launch, launch_from_head, on_demand, with_hosts

HOROVOD, NEEDS_HOROVOD = on_demand("MSLAUNCH_TEST_HOROVOD_PYTHON", "horovod.torch")
CLIENT = Path(__file__).with_name("horovod_client.py")
SUM = EXAMPLES / "allreduce_horovod.py"
pytestmark = pytest.mark.limit(SECONDS + 20)
#: the second time, and a process set besides, need scopes that were emptied, and names that nobody knew before
AGAIN = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import horovod.torch as hvd, torch
for _ in range(2):
    hvd.init()
    hvd.shutdown()
odd = hvd.ProcessSet([1])
hvd.init(process_sets=[odd])
print(hvd.rank(), odd.included(), hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item())
"""
#: the first attempt fails once all have met
FAILS_ONCE = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os, horovod.torch as hvd
hvd.init()
print("attempt", os.environ["MSLAUNCH_ATTEMPT"], "of", hvd.size(), flush=True)
hvd.barrier()
os._exit(3 if os.environ["MSLAUNCH_ATTEMPT"] == "1" and hvd.rank() else 0)
"""


def rows(*hosts: int) -> list[str]:
    """What ranks print; so many are on each host, of equal sizes or one."""
    size, found = sum(hosts), []
    for node, count in enumerate(hosts):
        for local in range(count):
            alike = [other for other, ranks in enumerate(hosts) if ranks > local]
            where = f"local {local} of {count}, cross {alike.index(node)} of {len(alike)}"
            found.append(f"rank {len(found)} of {size}, {where}: sum {size * (size - 1) // 2}")
    return found


@NEEDS_HOROVOD
@pytest.mark.parametrize("size", [1, 3])
def test_ranks_of_one_host(size: int, tmp_path: Path) -> None:
    done = launch("-n", size, "--oversubscribe", "--horovod", "gloo", HOROVOD, SUM, directory=tmp_path)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, rows(size)), done.stderr


@NEEDS_HOROVOD
@with_hosts
@pytest.mark.parametrize("hosts", [(2, 2), (2, 1)])
def test_ranks_of_two_hosts(hosts: tuple[int, int], two_hosts: Cluster, tmp_path: Path) -> None:
    names = ",".join(f"n0{number + 1}:{count}" for number, count in enumerate(hosts))
    done = launch_from_head(two_hosts, "-H", names, "--horovod", "gloo", HOROVOD, SUM, directory=tmp_path)
    assert (done.code, done.lines) == (0, rows(*hosts)), done.err


@NEEDS_HOROVOD
def test_it_is_started_again_and_has_process_sets(tmp_path: Path) -> None:
    done = launch("-n", 2, "--horovod", "gloo", HOROVOD, "-c", AGAIN, directory=tmp_path)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["0 False 2.0", "1 True 2.0"]), done.stderr


@NEEDS_HOROVOD
def test_ranks_without_a_store_are_not_left_alone(tmp_path: Path) -> None:
    """The build has no MPI, and its symbols."""
    done = launch(
        "-n", 2, HOROVOD, "-c", "import time, horovod.torch as hvd; hvd.init(); time.sleep(90)", directory=tmp_path
    )
    assert done.returncode == 1 and "came up alone, as rank 0 of 1, with Horovod" in done.stderr


@NEEDS_HOROVOD
def test_all_ranks_again(tmp_path: Path) -> None:
    words = ["-n", "2", "--restart", "group", "--horovod", "gloo", HOROVOD, "-c", FAILS_ONCE]
    done = launch(*words, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["attempt 1 of 2"] * 2 + ["attempt 2 of 2"] * 2


@with_hosts
def test_the_interface_is_the_one_between_the_hosts(two_hosts: Cluster, tmp_path: Path) -> None:
    """The ranks of the second host reach those of the first, on whose loopback nobody else can connect."""
    words = ["-H", "n01:2,n02:1", "--horovod", "gloo", sys.executable, str(CLIENT)]
    done = launch_from_head(two_hosts, *words, directory=tmp_path)
    expected = ["0: 0 of [0, 1, 2] [0, 1] [0, 2]", "0: 1 of [0, 1, 2] [0, 1] [1]", "0: 2 of [0, 1, 2] [2] [0, 2]"]
    assert (done.code, done.lines) == (0, expected), done.err
