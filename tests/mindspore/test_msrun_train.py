"""Training started by msrun's own line, and what becomes of it when the scheduler cannot start or dies."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainings import EXAMPLES, LAUNCHER, MARK, MARKS, NET, Job, Launch, check_training, environment, launch_in

pytestmark = MARKS


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launch_in(tmp_path) as launch:
        yield launch


def line(workers: int, *more: str) -> list[str]:
    """The arguments of `msrun`."""
    total = [f"--worker_num={workers}", f"--local_worker_num={workers}"]
    return [*total, "--log_dir=msrun_log", "--join=True", "--cluster_time_out=90", *more]


def test_training_with_the_command_line_of_msrun(launch: Launch) -> None:
    workers = 4  # two of them: test_migrating, beside the real one
    logs = launch.directory / "msrun_log"
    job = launch.train(workers, [*line(workers), str(NET)], lambda rank: logs / f"worker_{rank}.log")
    assert job.process.returncode == 0, job.said
    for rank in range(workers):
        check_training((logs / f"worker_{rank}.log").read_text(), rank, workers)
    assert "meta_server_node" in (logs / "scheduler.log").read_text()
    assert job.out.read_text().count(f"parameters equal on all {workers} ranks") == workers  # --join=True shows all


def test_a_host_that_was_forgotten_is_told_and_may_still_come(launch: Launch) -> None:
    words = ["--worker_num=2", "--local_worker_num=1", "--join=True", "--cluster_time_out=90"]
    first = launch.start(*words, "--node_rank=0", "--log_dir=first", str(NET))
    first.wait_for("1 of 2 workers is here; MindSpore waits for 1 more at 127.0.0.1, port 8118", first.err)
    other = launch.directory / "other"  # as if it were another host
    other.mkdir()
    line_there = [*LAUNCHER, *words, "--node_rank=1", "--log_dir=second", str(NET)]
    second = Job(line_there, other, environment(**{MARK: str(launch.directory)}))
    first.wait_for("mslaunch: all 2 are here", first.err)
    assert (first.end(), second.end()) == (0, 0), first.said + second.said


def test_a_taken_port_is_reported_before_anything_starts(launch: Launch) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        began = time.monotonic()
        job = launch(*line(2, f"--master_port={port}"), str(NET))
    assert job.process.returncode not in (0, None)
    assert f"port {port} is taken" in job.said
    assert "--master_port" in job.said
    assert time.monotonic() - began < 60  # msrun: cluster_time_out, which is 90
    assert not list((launch.directory / "msrun_log").glob("worker_*")) or not any(
        log.stat().st_size for log in (launch.directory / "msrun_log").glob("worker_*")
    )


def test_a_scheduler_that_dies_is_the_cause(launch: Launch) -> None:
    job = launch.start(*line(2), str(EXAMPLES / "net_recovery.py"), STEP_SECONDS="0.1")
    job.wait_for("epoch 0", launch.directory / "msrun_log" / "worker_0.log")
    os.kill(launch.pid("MS_ROLE=MS_SCHED"), signal.SIGKILL)
    killed = time.monotonic()
    assert job.end() == 1, job.said
    assert time.monotonic() - killed < 20  # msrun: 25 s; ours in 3, on a quiet machine
    first = next(text for text in job.notices if "SIGKILL" in text)
    assert first.startswith("mslaunch: the MindSpore scheduler"), job.notices


def test_a_parameter_server_joins(launch: Launch) -> None:
    """It joins as one and no more: MindSpore 2.10 has no parameters for it to keep (docs/mindspore.md).

    The worker trains, for one that ends as soon as it has joined may hang in its exit, which that page tells too.
    """
    program = launch.directory / "joins.py"
    program.write_text(
        "import os, signal, sys, time\n"
        "if os.environ['MS_ROLE'] == 'MS_WORKER':\n"
        f"    sys.path.append({str(NET.parent)!r})\n"
        "    import net\n"
        "    while not os.path.exists('joined'):\n"
        "        time.sleep(0.05)\n"
        "else:\n"
        "    from mindspore.communication import get_group_size, get_rank, init\n"
        "    init()\n"
        "    print(os.environ['MS_ROLE'], get_rank(), 'of', get_group_size(), flush=True)\n"
        "    open('joined', 'w').close()\n"
        "    signal.pause()\n"
    )
    words = ["--worker_num=1", "--server_num=1", "--log_dir=logs", "--join=True", str(program)]
    logs = launch.directory / "logs"
    job = launch.train(1, words, lambda rank: logs / f"worker_{rank}.log")
    assert job.process.returncode == 0, job.said
    assert "(role: MS_PSERVER)" in (logs / "scheduler.log").read_text()
    check_training((logs / "worker_0.log").read_text(), 0, 1)
    assert "MS_PSERVER 0 of 1" in (logs / "server_0.log").read_text()
