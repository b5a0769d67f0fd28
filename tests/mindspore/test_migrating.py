"""docs/migrating.md, pair by pair: what was typed before and what is typed now, both run, with fewer workers.

The commands are read from the page itself.  Where MindSpore's CPU package cannot train (under the real mpirun) the
program is a small one that prints its rank.  `python` is the first one in PATH on all hosts, as on MindSpore's pages,
where .bashrc sets it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import without_warnings
from trainings import EXAMPLES, HOSTS, PYTHON, final_loss, having, wait_until

PROJECT = Path(__file__).parents[2]
CLUSTER = [sys.executable, "-S", str(PROJECT / "scripts" / "cluster")]
FENCE = re.compile(r"^```bash (\S+) (before|after|own)(?: (node\d))?\n(.*?)^```$", re.M | re.S)
SECONDS = 150  #: two workers take about 15
SMALL = """\
import os
rank, size = (os.environ[f"OMPI_COMM_WORLD_{name}"] for name in ("RANK", "SIZE"))
os.write(1, f"rank {rank} of {size}\\n".encode())
"""
NODES = {"node1": "n01", "node2": "n02", "10.0.0.1": "10.77.1.1"}

with_mindspore = [
    pytest.mark.mindspore,
    pytest.mark.slow,
    pytest.mark.limit(2 * SECONDS + 60),
    pytest.mark.skipif(
        not os.access(PYTHON, os.X_OK),
        reason=f"MSLAUNCH_TEST_MINDSPORE_PYTHON is {PYTHON!r}: it should name a Python that has MindSpore",
    ),
]


def page() -> dict[tuple[str, str, str], str]:
    """(pair, when, node or "") -> script."""
    text = (PROJECT / "docs" / "migrating.md").read_text(encoding="utf-8")
    return {(pair, when, node): script for pair, when, node, script in FENCE.findall(text)}


PAGE = page()


def fewer(script: str, numbers: dict[int, int]) -> str:
    """The script with other numbers of workers, and the test cluster's hosts."""
    for name, host in NODES.items():
        script = re.sub(rf"\b{re.escape(name)}\b", host, script)
    return re.sub(r"\b\d+\b", lambda found: str(numbers.get(int(found[0]), found[0])), script)


def test_every_pair_of_the_page_has_both_sides() -> None:
    pairs = {pair for pair, _, _ in PAGE}
    assert len(pairs) == 9
    assert all({"before", "after"} <= {when for name, when, _ in PAGE if name == pair} for pair in pairs)


class Workspace:
    """Where scripts are typed: a directory with net.py, here or on hosts of a cluster."""

    def __init__(self, directory: Path, hosts: Path | None = None) -> None:
        self.directory = directory
        self._hosts = hosts
        self._jobs: list[subprocess.Popen[str]] = []
        tools = directory / "tools"
        tools.mkdir()
        command = tools / "mslaunch"
        command.write_text(f'#!/bin/sh\nPYTHONPATH={PROJECT} exec {sys.executable} -m mslaunch "$@"\n')
        command.chmod(0o755)
        python = Path(PYTHON or sys.executable)
        path = f"{tools}:{python.parent}"
        for host in NODES.values() if hosts else ():
            if (hosts / "home" / host).is_dir():  # what one sets there: a login by ssh reads it
                (hosts / "home" / host / ".bashrc").write_text(f"export PATH={path}:$PATH\n")
        self.env = {
            **os.environ, "PATH": f"{path}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "MSLAUNCH_JOBS": str(directory / "jobs"),
        }  # fmt: skip

    def begin(self, script: str, host: str = "head") -> subprocess.Popen[str]:
        """bash with this script, there; what it leaves in the background is waited for."""
        words = ["bash", "-c", f"{script}\nstatus=$?\nwait\nexit $status"]
        if self._hosts:
            words = [*CLUSTER, "exec", "--dir", str(self._hosts), host, *words]
        job = subprocess.Popen(
            words, cwd=self.directory, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._jobs.append(job)
        return job

    def end(self, *jobs: subprocess.Popen[str], seconds: float = SECONDS) -> str:
        """What they print; all must end well, and within this time."""
        try:
            said = [job.communicate(timeout=seconds)[0] for job in jobs]
        finally:
            self.destroy()
        assert [job.returncode for job in jobs] == [0] * len(jobs), "\n".join(said)[-4000:]
        return "".join(said)

    def destroy(self) -> None:
        """What is still there, with what scripts left in the background: it would join the job of another test."""
        for job in self._jobs:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
        self._jobs.clear()

    def run(self, pair: str, when: str, numbers: dict[int, int]) -> str:
        """All scripts of one side of a pair, at one time."""
        found = [(node, script) for (name, at, node), script in PAGE.items() if (name, at) == (pair, when)]
        assert found
        return self.end(*(self.begin(fewer(script, numbers), NODES.get(node, "head")) for node, script in found))

    def fresh(self, *names: str) -> None:
        """Without what a script before has left."""
        for name in names:
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def trained(self, directory: str, ranks: int, pattern: str = "worker_{}.log") -> None:
        """Every rank has said that all have the same parameters."""
        for rank in range(ranks):
            text = (self.directory / directory / pattern.format(rank)).read_text()
            assert f"parameters equal on all {ranks} ranks" in text, text[-2000:]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    for name in ("net.py", "mkdata.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    workspace = Workspace(tmp_path)
    yield workspace
    workspace.destroy()


@pytest.fixture
def workspaces(tmp_path: Path) -> Iterator[Workspace]:
    hosts = tmp_path / "cluster"
    subprocess.run([*CLUSTER, "up", "2", "--dir", str(hosts)], check=True, timeout=60)
    for name in ("net.py", "mkdata.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    workspace = Workspace(tmp_path, hosts)
    yield workspace
    workspace.destroy()
    subprocess.run([*CLUSTER, "down", "--dir", str(hosts)], check=True, timeout=60)


def marked(marks: list[pytest.MarkDecorator]):
    def mark(test):
        for one in marks:
            test = one(test)
        return test

    return mark


# --- with MindSpore


@marked(with_mindspore)
def test_msrun_on_one_host(workspace: Workspace) -> None:
    for when in ("before", "after"):
        workspace.run("msrun-one-host", when, {8: 2})
        workspace.trained("msrun_log", 2)
        assert "meta_server_node" in (workspace.directory / "msrun_log" / "scheduler.log").read_text()
    names = {path.name for path in (workspace.directory / "msrun_log").iterdir()} - {"run.json"}
    kept = {"worker_0.log", "worker_1.log", "scheduler.log"}
    assert names == kept | {f"{name}.1" for name in kept}  # those of msrun itself


@marked(with_mindspore)
def test_the_dynamic_cluster_on_one_host(workspace: Workspace) -> None:
    workspace.run("cluster-one-host", "before", {8: 2})
    workspace.trained("device", 2)
    workspace.fresh("device")
    workspace.end(workspace.begin(fewer(PAGE["cluster-one-host", "after", ""], {8: 2})))
    wait = "until mslaunch --status | grep -q ended; do sleep 0.2; done"
    workspace.end(workspace.begin(wait))
    workspace.trained("device", 2)


@marked(with_mindspore + HOSTS)
def test_msrun_on_two_hosts(workspaces: Workspace) -> None:
    for when in ("before", "after"):
        workspaces.run("msrun-two-hosts", when, {8: 2, 4: 1})
        workspaces.trained("msrun_log", 2)
        workspaces.fresh("msrun_log")


@marked(with_mindspore + HOSTS)
def test_the_dynamic_cluster_on_two_hosts(workspaces: Workspace) -> None:
    for when in ("before", "after"):
        workspaces.run("cluster-two-hosts", when, {8: 2, 4: 1})
        workspaces.trained("device", 2)
        workspaces.fresh("device")


def kill_scheduler(workspace: Workspace) -> None:
    """Once training has begun."""
    log = workspace.directory / "device" / "worker_0.log"
    wait_until(lambda: log.exists() and "epoch 0" in log.read_text(), SECONDS)
    (pid,) = having("MS_ROLE=MS_SCHED", f"CKPT_DIR={workspace.env['CKPT_DIR']}")
    os.kill(pid, signal.SIGKILL)


def by_hand(workspace: Workspace) -> str:
    """The final loss.  Ends what is left: workers may have done their work before the new scheduler knows them all, and
    then wait for it for ever."""
    script = "export MS_ENABLE_RECOVERY=1 MS_RECOVERY_PATH=$PWD/recovery\n" + PAGE["cluster-one-host", "before", ""]
    workspace.env.update(CKPT_DIR=str(workspace.directory / "by-hand"), STEP_SECONDS="0.05")
    workspace.begin(fewer(script, {8: 2}))
    kill_scheduler(workspace)
    workspace.begin(fewer(PAGE["recovery", "before", ""], {8: 2}))
    log = workspace.directory / "device" / "worker_0.log"
    wait_until(lambda: "parameters equal on all 2 ranks" in log.read_text(), SECONDS)
    workspace.destroy()
    return final_loss(log.read_text())


def by_itself(workspace: Workspace) -> str:
    """The final loss; all ends."""
    workspace.env.update(CKPT_DIR=str(workspace.directory / "by-itself"), STEP_SECONDS="0.05")
    job = workspace.begin(fewer(PAGE["recovery", "after", ""], {8: 2}))
    kill_scheduler(workspace)
    workspace.end(job)
    return final_loss((workspace.directory / "device" / "worker_0.log").read_text())


@marked(with_mindspore)
@pytest.mark.limit(4 * SECONDS)
def test_a_scheduler_that_dies(workspace: Workspace) -> None:
    """By hand it is started again with a script; here nobody does anything.  Training is not disturbed by either."""
    for name in ("net.py", "net_recovery.py"):
        shutil.copy(EXAMPLES / "net_recovery.py", workspace.directory / name)
    loss = by_hand(workspace)
    workspace.fresh("device")
    assert by_itself(workspace) == loss


# --- with mpirun


def left(directory: Path) -> dict[str, str]:
    """What mpirun's log directory holds."""
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*")
            if path.is_file() and path.name != "run.json"}  # fmt: skip


def both_alike(workspace: Workspace, pair: str, numbers: dict[int, int]) -> None:
    (workspace.directory / "net.py").write_text(SMALL)
    logs = []
    for when in ("before", "after"):
        workspace.run(pair, when, numbers)
        logs.append(left(workspace.directory / "log_output"))
        workspace.fresh("log_output")
    assert logs[0] == logs[1]
    assert len(logs[0]) == 2


def test_mpirun_on_one_host(workspace: Workspace, need) -> None:
    need("mpirun")
    both_alike(workspace, "mpirun-one-host", {8: 2})


@marked(HOSTS)
@pytest.mark.parametrize("pair", ["mpirun-hosts", "mpirun-hostfile"])
def test_mpirun_on_two_hosts(workspaces: Workspace, need, pair: str) -> None:
    need("mpirun")
    (workspaces.directory / "hostfile").write_text("n01 slots=1\nn02 slots=1\n")
    both_alike(workspaces, pair, {16: 2, 8: 1})


@marked(HOSTS)
def test_mpirun_and_a_script_for_each_host(workspaces: Workspace, need) -> None:
    need("mpirun")
    (workspaces.directory / "net.py").write_text(SMALL)
    script = workspaces.directory / "mpirun_gpu_cluster.sh"
    script.write_text("#!/bin/sh\nexport NCCL_SOCKET_IFNAME=$(hostname)\necho $DATA_PATH; python net.py\n")
    script.chmod(0o755)
    both = [workspaces.run("mpirun-script", when, {16: 2, 8: 1}) for when in ("before", "after")]
    said = [sorted(without_warnings(text).splitlines()) for text in both]
    assert said[0] == said[1] == ["data", "data", "rank 0 of 2", "rank 1 of 2"]
