"""The real torch (CPU, gloo): DistributedDataParallel on one host and two, and what ranks know of restarts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from clusters import Cluster, Result
from framework_jobs import EXAMPLES, NEEDS_TORCH, SECONDS, TORCH, launch, launch_from_head, with_hosts

pytestmark = NEEDS_TORCH
DDP = EXAMPLES / "ddp_torch.py"
TORCHS = {"PYTHON_EXEC": TORCH}  # the dialect runs scripts by that
#: all meet anew in each attempt; rank 1 fails in the first two
RESTARTED = """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("restart", count, "of", os.environ["TORCHELASTIC_MAX_RESTARTS"], "sum", int(total), flush=True)
dist.barrier()
if count < 2 and dist.get_rank() == 1:
    os._exit(7)
dist.barrier()
"""


def check(lines: list[str], size: int) -> None:
    found = [re.fullmatch(rf"rank (\d) of {size}: loss (\S+) -> (\S+), parameters equal", line) for line in lines]
    assert sorted(int(one[1]) for one in found if one) == list(range(size)), lines
    assert all(one and float(one[3]) < float(one[2]) / 10 for one in found)


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_of_one_host_have_equal_parameters(size: int, tmp_path: Path) -> None:
    done = launch("-n", size, TORCH, DDP, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    check(done.stdout.splitlines(), size)


@with_hosts
def test_ranks_of_two_hosts_have_equal_parameters(two_hosts: Cluster, tmp_path: Path) -> None:
    done = launch_from_head(two_hosts, "-H", "n01:1,n02:2", TORCH, DDP, directory=tmp_path)
    assert done.code == 0, done.err
    check(done.lines, 3)


@with_hosts
def test_torchruns_line_on_each_host(two_hosts: Cluster, tmp_path: Path) -> None:
    """The same words on both, as for the real torchrun: c10d, and no numbers.  The hosts' homes are not shared."""
    line = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n01:29400", "--rdzv-id=ddp"]
    ends = on_each_host(two_hosts, tmp_path, *((host, [*line, str(DDP)]) for host in ("n02", "n01")))
    check([line for end in ends for line in end.lines], 4)
    assert sorted(len(end.lines) for end in ends) == [2, 2]


def on_each_host(two_hosts: Cluster, directory: Path, *lines: tuple[str, list[str]]) -> list[Result]:
    """How a command with torchrun's words on each host ends; all know one secret, and each ends well."""
    for host, _ in lines:
        place = two_hosts.home(host) / ".config" / "mslaunch"
        place.mkdir(parents=True, exist_ok=True)
        (place / "rendezvous-secret").write_text("0123456789abcdef")
        (place / "rendezvous-secret").chmod(0o600)
    jobs = [two_hosts.start_on(host, "--dialect", "torchrun", *line, cwd=directory, env=TORCHS) for host, line in lines]
    try:
        ends = [job.end(SECONDS) for job in jobs]
    finally:
        for job in jobs:
            job.destroy()
    assert [end.code for end in ends] == [0] * len(lines), [end.err for end in ends]
    return ends


@with_hosts
@pytest.mark.parametrize("numbers", [False, True], ids=["c10d", "with numbers"])
def test_hosts_with_a_command_each_start_again_together(two_hosts: Cluster, tmp_path: Path, numbers: bool) -> None:
    """Of the real torchrun (2.13) only the host that failed restarts, and Gloo finds stale addresses in its store."""

    def line(node: int) -> list[str]:
        c10d = ["--rdzv-backend=c10d", "--rdzv-endpoint=n01:29400"]
        where = [f"--node-rank={node}", "--master-addr=n01", "--master-port=29510"] if numbers else c10d
        return ["--nnodes=2", "--nproc-per-node=2", "--max-restarts=4", *where, "--no-python", TORCH, "-c", RESTARTED]

    ends = on_each_host(two_hosts, tmp_path, ("n02", line(1)), ("n01", line(0)))
    for end in ends:
        said = [text for text in end.lines if text.startswith("restart")]
        assert sorted(set(said)) == [f"restart {count} of 4 sum 4" for count in range(3)], end


def test_one_rank_has_as_many_threads_as_without_a_launcher(tmp_path: Path) -> None:
    """torch with MKL (PyPI, x86) had half of them or fewer."""
    words = [TORCH, "-c", "import torch; print(torch.get_num_threads())"]
    alone = subprocess.run(words, capture_output=True, text=True, check=True, timeout=SECONDS)
    assert launch("-n", 1, *words, directory=tmp_path).stdout == alone.stdout


def test_a_group_that_starts_again_counts_its_restarts(tmp_path: Path) -> None:
    done = launch("-n", 2, "--restart", "group", "--max-restarts", 4, TORCH, "-c", RESTARTED, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("restart")]
    assert sorted(set(said)) == [f"restart {count} of 4 sum 2" for count in range(3)]


def test_a_rank_that_starts_again_alone_counts_its_restarts(tmp_path: Path) -> None:
    script = "import os, sys; count = os.environ['TORCHELASTIC_RESTART_COUNT']; print(count); sys.exit(count < '2')"
    done = launch("-n", 1, "--max-restarts", 3, TORCH, "-c", script, directory=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1", "2"]), done.stderr


def test_ranks_are_torchelastics(tmp_path: Path) -> None:
    """As programs and libraries ask: a launcher has started this process, and serves no store."""
    facts = "' '.join([str(dist.is_torchelastic_launched()), *os.environ])"
    script = f"import os, torch.distributed as dist; os.write(1, ({facts} + '\\n').encode())"
    done = launch("-n", 2, TORCH, "-c", script, directory=tmp_path)
    assert [line.startswith("True ") for line in done.stdout.splitlines()] == [True] * 2, done.stderr
    assert "USE_AGENT_STORE" not in done.stdout
