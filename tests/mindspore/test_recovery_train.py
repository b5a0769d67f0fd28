"""The example that recovers, under kill -9: it ends with the very loss of a run that nothing happened to."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainings import (
    EXAMPLES,
    HOSTS,
    LAUNCHER,
    MARKS,
    Cluster,
    Launch,
    final_loss,
    hosts_in,
    launch_in,
    started,
    wait_quiet,
)  # fmt: skip

pytestmark = MARKS
PROGRAM = str(EXAMPLES / "net_recovery.py")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launch_in(tmp_path) as launch:
        yield launch


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The loss of a run that nothing happened to."""
    with launch_in(tmp_path_factory.mktemp("undisturbed")) as launch:
        job = launch("--worker_num=2", "--log_dir=logs", "--join=True", PROGRAM)
        assert job.process.returncode == 0, job.said
        return final_loss((launch.directory / "logs" / "worker_0.log").read_text())


def test_a_scheduler_and_a_worker_are_killed(launch: Launch, undisturbed: str) -> None:
    """The scheduler is restarted alone, without disturbing the workers; for the worker all ranks are restarted."""
    logs = launch.directory / "logs"
    words = ["--worker_num=2", "--log_dir=logs", "--join=True", "--restart", "group", PROGRAM]
    job = launch.start(*words, STEP_SECONDS="0.05")
    job.wait_for("attempt 1: epoch 0", logs / "worker_0.log")
    first = launch.pid("MS_ROLE=MS_SCHED")
    os.kill(first, signal.SIGKILL)
    job.wait_for("attempt 1: epoch 5", logs / "worker_0.log")  # five seconds later
    assert launch.pid("MS_ROLE=MS_SCHED") != first
    os.kill(launch.pid("MS_ROLE=MS_WORKER", "MS_NODE_ID=1"), signal.SIGKILL)
    assert job.end() == 0, job.said
    for rank in range(2):
        assert "goes on after" not in (logs / f"worker_{rank}.log").read_text()
        again = (logs / f"worker_{rank}.attempt-2.log").read_text()
        assert re.search(rf"^rank {rank}/2: attempt 2: goes on after \d epochs, from its checkpoint$", again, re.M)
        assert final_loss(again) == undisturbed
    killed = [text for text in job.notices if "SIGKILL" in text]
    assert "the MindSpore scheduler" in killed[0], job.notices
    assert "rank 1" in killed[1], job.notices


def test_a_scheduler_is_killed_when_the_work_is_all_but_done(launch: Launch, undisturbed: str) -> None:
    """Either the workers find the new one in time, or they would wait forever, and all ranks are restarted."""
    log = launch.directory / "logs" / "worker_0.log"
    job = launch.start("--worker_num=2", "--log_dir=logs", "--join=True", "--restart", "group", PROGRAM)
    job.wait_for("attempt 1: epoch 8", log)
    os.kill(launch.pid("MS_ROLE=MS_SCHED"), signal.SIGKILL)
    assert job.end() == 0, job.said
    again = log.with_name("worker_0.attempt-2.log")
    text = (again if again.exists() else log).read_text()
    assert final_loss(text) == undisturbed
    assert not again.exists() or "goes on after 10 epochs" in text


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with hosts_in(tmp_path_factory.mktemp("hosts"), 3) as cluster:
        yield cluster


class TestHosts:
    """An agent, and then its host, are lost; a host that stood by takes its place."""

    pytestmark = HOSTS

    def test_an_agent_and_a_host_are_killed(self, cluster: Cluster, tmp_path: Path, undisturbed: str) -> None:
        config = cluster.home("head") / ".ssh" / "config"
        config.write_text(f"ServerAliveInterval 2\n{config.read_text()}")  # of silence, 6 s are enough here
        (tmp_path / "hosts").write_text("n01 slots=1\nn02 slots=1\nn03 slots=1 spare\n")
        words = ["--worker_num=2", "--hostfile", "hosts", "--log_dir=logs", "--join=True", "--restart", "group"]
        words += ["-x", "STEP_SECONDS", "-x", "CKPT_DIR", PROGRAM]
        more = {"STEP_SECONDS": "0.05", "CKPT_DIR": str(tmp_path / "checkpoints")}
        with started(cluster, "head", [*LAUNCHER, *words], tmp_path, **more) as job:
            job.wait_for("attempt 1: epoch 1", tmp_path / "logs" / "worker_0.log")
            os.kill(agent(cluster, "n02"), signal.SIGKILL)
            job.wait_for("attempt 2: epoch", tmp_path / "logs" / "worker_0.attempt-2.log")
            cluster("kill", "n02")  # as by a power failure: found out by silence
            assert job.end() == 0, job.said
        for rank in range(2):
            assert final_loss((tmp_path / "logs" / f"worker_{rank}.attempt-3.log").read_text()) == undisturbed
        assert any("n03 takes the place of n02" in text for text in job.notices), job.notices
        wait_quiet(cluster, "head", "n01", "n03")


def agent(cluster: Cluster, host: str) -> int:
    """The process there whose child the worker is."""
    workers = [pid for pid, words in cluster.processes(host).items() if PROGRAM in words]
    return min(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in workers)
