"""The example network on two real hosts: ranks, and the scheduler, on either side of an ssh link.

Rank 0's host runs the scheduler though the launcher is on a third host, which has no part in the training.  Then half
of a job is msrun's and half of it ours, each started on its own host, as MindSpore's tutorials do it.  Last, each host
is a pod as operators of Kubernetes start them, with their variables and a command that says nothing of hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainings import HOSTS, LAUNCHER, MARKS, NET, PYTHON, Cluster, check_training, hosts_in, started, wait_quiet

pytestmark = [*MARKS, *HOSTS]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with hosts_in(tmp_path_factory.mktemp("hosts"), 2) as cluster:
        yield cluster


def test_two_ranks_on_each_of_two_hosts(cluster: Cluster, tmp_path: Path) -> None:
    words = ["-H", "n01:2,n02:2", "--output-filename", "log_output", "--merge-stderr-to-stdout", PYTHON, str(NET)]
    with started(cluster, "head", [*LAUNCHER, *words], tmp_path) as job:
        assert job.end() == 0, job.said
    logs = tmp_path / "log_output" / "1"
    for rank in range(4):
        check_training((logs / f"rank.{rank}" / "stdout").read_text(), rank, 4)
    assert (logs / "scheduler" / "stdout").stat().st_size > 0
    wait_quiet(cluster, "head", "n01", "n02")


def test_three_workers_on_one_host_and_one_on_the_other(cluster: Cluster, tmp_path: Path) -> None:
    """What msrun cannot do."""
    words = ["--worker_num=4", "-H", "n01:3,n02:1", "--log_dir=msrun_log", "--join=True", str(NET)]
    with started(cluster, "head", [*LAUNCHER, *words], tmp_path) as job:
        assert job.end() == 0, job.said
    for rank in range(4):
        check_training((tmp_path / "msrun_log" / f"worker_{rank}.log").read_text(), rank, 4)
    scheduler = (tmp_path / "msrun_log" / "scheduler.log").read_text()
    assert scheduler.count("ip: 10.77.1.1 is registered") == 3
    assert scheduler.count("ip: 10.77.1.2 is registered") == 1
    wait_quiet(cluster, "head", "n01", "n02")


@pytest.mark.parametrize("ours", [0, 1])
def test_half_of_a_job_is_started_by_msrun(cluster: Cluster, tmp_path: Path, ours: int) -> None:
    """Whoever has the first node starts the scheduler."""
    msrun = [str(Path(PYTHON).with_name("msrun"))]
    share = ["--worker_num=2", "--local_worker_num=1", "--master_addr=10.77.1.1", "--master_port=8118"]
    share += ["--log_dir=msrun_log", "--join=True", "--cluster_time_out=90"]

    def half(node: int) -> list[str]:
        return [*(LAUNCHER if node == ours else msrun), *share, f"--node_rank={node}", str(NET)]

    first, second = tmp_path / "first", tmp_path / "second"
    with (
        started(cluster, "n01", half(0), first) as one,
        started(cluster, "n02", half(1), second) as other,
    ):
        assert one.end() == 0, one.said
        assert other.end() == 0, other.said
    check_training((first / "msrun_log" / "worker_0.log").read_text(), 0, 2)
    check_training((second / "msrun_log" / "worker_1.log").read_text(), 1, 2)
    assert not (second / "msrun_log" / "scheduler.log").exists()
    wait_quiet(cluster, "head", "n01", "n02")


def test_the_pods_of_ms_operator_train(cluster: Cluster, tmp_path: Path) -> None:
    """Scheduler and workers run the same command; MS_NODE_ID is the pod's name, and the ranks have its number."""
    job = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "MS_SCHED_HOST": "10.77.1.1", "MS_SCHED_PORT": "2222"}
    job |= {"MS_WORKER_NUM": "2", "MS_SERVER_NUM": "0"}

    def pod(role: str, name: str) -> dict[str, str]:
        return {**job, "MS_ROLE": role, "MS_NODE_ID": f"net-{name}"}

    words, places = [*LAUNCHER, PYTHON, str(NET)], {name: tmp_path / name for name in ("s", "w0", "w1")}
    with (
        started(cluster, "n01", words, places["s"], **pod("MS_SCHED", "scheduler-0")) as scheduler,
        started(cluster, "n02", words, places["w1"], **pod("MS_WORKER", "worker-1")) as one,
        started(cluster, "head", words, places["w0"], **pod("MS_WORKER", "worker-0")) as other,
    ):
        assert one.end() == 0, one.said
        assert other.end() == 0, other.said
        assert scheduler.end() == 0, scheduler.said
    for rank, worker in ((0, other), (1, one)):
        check_training(worker.out.read_text(), rank, 2)
        note = f"mslaunch: note: pod of ms-operator: worker {rank} of 2; the scheduler is at 10.77.1.1:2222"
        assert worker.notices == [note]
    (note,) = scheduler.notices
    assert note.startswith("mslaunch: note: pod of ms-operator: the scheduler of 2 workers")
    wait_quiet(cluster, "head", "n01", "n02")


def test_the_pods_of_the_ascend_operator_train(cluster: Cluster, tmp_path: Path) -> None:
    """The first pod has NPUs and the scheduler; the command line is that of msrun_launcher.sh with 9 arguments."""
    job = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "MINDX_TASK_ID": "1f6b", "MS_SCHED_HOST": "10.77.1.1"}
    job |= {"MS_SCHED_PORT": "2222", "MS_WORKER_NUM": "2", "MS_LOCAL_WORKER": "1", "MS_SERVER_NUM": "0"}
    line = ["--bind_core=True", "--worker_num=2", "--local_worker_num=1", "--master_addr=10.77.1.1"]
    line += ["--master_port=2222", "--log_dir=msrun_log", "--join=True", "--cluster_time_out=90"]

    def pod(role: str, node: int) -> dict[str, str]:
        return {**job, "MS_ROLE": role, "MS_NODE_RANK": str(node), "NPU_POD": "true", "RANK": str(node)}

    def words(node: int) -> list[str]:
        return [*LAUNCHER, *line, f"--node_rank={node}", "python", str(NET)]

    first, second = tmp_path / "first", tmp_path / "second"
    with (
        started(cluster, "n01", words(0), first, **pod("MS_SCHED", 0)) as one,
        started(cluster, "n02", [*LAUNCHER, "--dialect", "msrun", str(NET)], second, **pod("MS_WORKER", 1)) as other,
    ):
        assert one.end() == 0, one.said
        assert other.end() == 0, other.said
    check_training((first / "msrun_log" / "worker_0.log").read_text(), 0, 2)
    check_training((second / "worker_1.log").read_text(), 1, 2)
    assert one.notices[0].endswith("worker 0 of 2; with the scheduler, at 10.77.1.1:2222")
    assert not any("wins over" in notice for notice in one.notices)
    wait_quiet(cluster, "head", "n01", "n02")
