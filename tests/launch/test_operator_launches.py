"""Launches in pods that an operator of Kubernetes has started: what ranks get, how they meet, how a pod ends."""

from __future__ import annotations

import sys
from pathlib import Path

from launching import COMMAND, free_port

KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "MINDX_TASK_ID": "1f6b", "MS_SERVER_NUM": "0"}
#: rank 0 listens at MASTER_PORT, as torch's store does, until each of the others has said who it is
MEETING = """
import os, socket, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
me = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "NODE_RANK")]
if me[0] == "0":
    server, said = socket.create_server(place), [":".join(me)]
    while len(said) < int(os.environ["WORLD_SIZE"]):
        said.append(server.accept()[0].makefile().read())
    print(*sorted(said))
else:
    deadline = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(place, timeout=5) as link:
                link.sendall(":".join(me).encode())
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
"""
NAMES = ("MS_ROLE", "RANK_ID", "MS_NODE_ID", "DEVICE_ID", "MS_WORKER_NUM", "MS_SCHED_PORT", "RANK", "MS_NODE_RANK")
WORDS = f"' '.join(f'{{name}}={{os.environ.get(name)}}' for name in {NAMES})"
SHOW = f"import os; os.write(1, ({WORDS} + '\\n').encode())"
PYTHON = [sys.executable, "-S", "-c"]


def mindspore(role: str, node: int) -> dict[str, str]:
    """Two pods of the Ascend operator with two workers each."""
    job = {"MS_SCHED_HOST": "10.96.7.7", "MS_SCHED_PORT": "2222", "MS_WORKER_NUM": "4", "MS_LOCAL_WORKER": "2"}
    return {**KUBERNETES, **job, "MS_ROLE": role, "MS_NODE_RANK": str(node), "RANK": "7"}


def test_the_ranks_of_pytorchs_pods_meet(start, run) -> None:
    """RANK is the number of the pod there, and LOCAL_RANK a list."""
    job = {**KUBERNETES, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "4"}
    job |= {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0,1"}
    second = start([*PYTHON, MEETING], env={**job, "RANK": "1"})
    first = run([*PYTHON, MEETING], env={**job, "RANK": "0"})
    assert (first.code, first.out) == (0, b"0:0:0 1:1:0 2:0:1 3:1:1\n"), first.err
    assert second.end().code == 0


def test_a_workers_pod(run) -> None:
    done = run([*PYTHON, SHOW], env=mindspore("MS_WORKER", 1))
    assert done.code == 0, done.err
    assert done.lines == [
        f"MS_ROLE=MS_WORKER RANK_ID={rank} MS_NODE_ID={rank} DEVICE_ID={rank - 2} MS_WORKER_NUM=4 MS_SCHED_PORT=2222 "
        f"RANK={rank} MS_NODE_RANK=None"
        for rank in (2, 3)
    ]


def test_a_schedulers_pod_has_one_process_and_its_exit_code(run) -> None:
    done = run([*PYTHON, f"{SHOW}; raise SystemExit(3)"], env=mindspore("MS_SCHED", 0))
    assert done.code == 3
    assert done.out.decode().split() == [
        "MS_ROLE=MS_SCHED", "RANK_ID=0", "MS_NODE_ID=None", "DEVICE_ID=None", "MS_WORKER_NUM=4", "MS_SCHED_PORT=2222",
        "RANK=None", "MS_NODE_RANK=None",
    ]  # fmt: skip


def test_the_kubelets_term_reaches_the_scheduler(start) -> None:
    program = "import signal, sys; signal.signal(15, lambda *_: sys.exit('told')); print('ready', flush=True)"
    job = start([*PYTHON, f"{program}; signal.pause()"], env=mindspore("MS_SCHED", 0))
    job.expect(b"ready")
    job.send(15)
    ended = job.end()
    assert "told" in ended.err
    assert ended.code


def test_a_launch_in_a_rank_of_a_pod_is_a_job_of_its_own(run) -> None:
    done = run(["-n", "1", *COMMAND, "-n", "2", *PYTHON, SHOW], env=mindspore("MS_WORKER", 1))
    assert done.code == 0, done.err
    assert [line.split()[1:4] for line in done.lines] == [
        [f"RANK_ID={rank}", f"MS_NODE_ID={rank}", f"DEVICE_ID={rank}"] for rank in (0, 1)
    ]
    assert done.err.count("pod of the Ascend operator") == 1


def test_nothing_starts_where_a_variable_is_wrong(run, tmp_path: Path) -> None:
    trace = tmp_path / "started"
    done = run([*PYTHON, f"open({str(trace)!r}, 'w')"], env={**mindspore("MS_WORKER", 1), "MS_WORKER_NUM": "four"})
    assert done.err == (
        "mslaunch: MS_WORKER_NUM: 'four' is no whole number from 1 on\n"
        "  correct the job's manifest, or add --resource-manager none for a job of this pod alone\n"
    )
    assert not trace.exists()
    assert done.code == 1
