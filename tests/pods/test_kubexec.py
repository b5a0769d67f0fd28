"""MPIJob v1: a launcher that reaches its workers by `kubectl exec` alone; and the same by hand with --rsh-agent."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_api import KubeApi
from pods import MARKS, Container, Pods, Volume, interpreter

pytestmark = MARKS
PORT = 6443
STAND_IN = Path(__file__).with_name("kubectl_stand_in.py")
WORKERS = ("tensorflow-benchmarks-worker-0", "tensorflow-benchmarks-worker-1")
#: `newConfigMap` in pkg/controllers/v1/mpi_job_controller.go of mpi-operator v0.3.0
KUBEXEC = """#!/bin/sh
set -x
POD_NAME=$1
shift
/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"
"""
#: the launcher's variables there
ENV = {
    "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "NVIDIA_VISIBLE_DEVICES": "",
    "NVIDIA_DRIVER_CAPABILITIES": "",
}


class Kubexec:
    """A launcher and two workers that sleep, none of which has a name or a server of its own."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        launcher, *workers = (
            pods.pod(at, name, "") for at, name in enumerate(("tensorflow-benchmarks-launcher", *WORKERS), 1)
        )
        self.launcher = launcher
        hostfile = "".join(f"{name} slots=1\n" for name in WORKERS)
        config = pods.volume("config").write({"hostfile": hostfile, "kubexec.sh": KUBEXEC}, 0o444, kubexec=0o555)
        self.workers = {
            pod.name: pods.run(pod, ["sleep", "365d"], user=0, mounts={"/etc/mpi": config.path}) for pod in workers
        }
        self.api = KubeApi(pods.listener(launcher, PORT), pods.directory, launcher.address, self._first)
        account = {"token": self.api.token, "ca.crt": self.api.certificate.read_text(), "namespace": "ns"}
        self._mounts = {
            "/etc/mpi": config.path,
            "/var/run/secrets/kubernetes.io/serviceaccount": pods.volume("account").write(account).path,
            "/opt/kube": _kubectl(pods.volume("kube")).path,
        }

    def _first(self, name: str) -> int:
        return self.workers[name].first if name in self.workers else 0

    def wait_quiet(self, bound: float = 10.0) -> None:
        for worker in self.workers.values():
            worker.wait_quiet(bound)

    def launch(self, *words: object, env: dict[str, str], **how: Any) -> Container:
        env = {"KUBERNETES_SERVICE_HOST": self.launcher.address, "KUBERNETES_SERVICE_PORT": str(PORT), **env}
        return self._pods.run(self.launcher, words, user=0, env=env, mounts=self._mounts, image="launcher", **how)


def _kubectl(volume: Volume) -> Volume:
    """/opt/kube of the init container kubectl-delivery: the real one, if it is here and speaks WebSocket (1.31)."""
    real = shutil.which("kubectl")
    words = [real or "false", "version", "--client"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout
    version = re.search(r"v1\.(\d+)\.", said)
    path = volume.path / "kubectl"
    if version and int(version[1]) >= 31:
        path.symlink_to(real)
    else:
        path.write_text(f'#!/bin/sh\nexec {interpreter()} -I -S {STAND_IN} "$@"\n')
        path.chmod(0o755)
    return volume


@pytest.fixture(scope="module")
def job(pods: Pods) -> Iterator[Kubexec]:
    made = Kubexec(pods)
    yield made
    made.api.close()


#: examples/v1/tensorflow-benchmarks.yaml of mpi-operator v0.3.0
OPTIONS = ["--allow-run-as-root", "-np", 2, "-bind-to", "none", "-map-by", "slot", "-x", "NCCL_DEBUG=INFO"]
OPTIONS += ["-x", "LD_LIBRARY_PATH=/lib", "-x", "PATH", "-mca", "pml", "ob1", "-mca", "btl", "^openib"]
#: a kubectl that takes longer than 5 s to bring the end is killed, and then the default lease (15 s) ends the agent
LEASED = 30.0
KUBECTL = "/opt/kube/kubectl exec -i"
TEMPLATE = "/opt/kube/kubectl exec --stdin pod/{host} -- sh -c {command}"
WAITS = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.mark.parametrize("command", ["mpirun", "mslaunch"])
def test_kubexec(job, command):
    """The script has no standard input, and joins its words again: the agent's command is run with one, unjoined."""
    done = job.launch(command, *OPTIONS, "sh", "-c", 'echo "$(hostname) $NCCL_DEBUG"', env=ENV).end()
    assert (done.code, done.lines) == (0, [f"{name} INFO" for name in WORKERS]), done.err
    assert {(pod, stdin) for pod, _, stdin in job.api.executed} == {(name, True) for name in WORKERS}


def test_agents_behind_kubectl_have_a_name(job):
    done = job.launch("mpirun", *OPTIONS, "sh", "-c", "cat /proc/$PPID/comm", env=ENV).end()
    assert (done.code, done.lines) == (0, ["mslaunch-agent"] * 2), done.err


def test_the_exit_code_of_a_rank_behind_kubectl(job):
    done = job.launch("mpirun", *OPTIONS, "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK * 7))", env=ENV).end()
    assert done.code == 7, done.err


@pytest.mark.parametrize("way", [KUBECTL, TEMPLATE])
def test_kubectl_by_hand(job, way, tmp_path):
    """Bytes of a rank's input and output pass, and a signal reaches the ranks."""
    hosts = ("-H", ",".join(WORKERS))
    with open("/usr/bin/env", "rb") as file:
        done = job.launch("mslaunch", "--rsh-agent", way, *hosts, "-n", 1, "cat", env={}, stdin=file).end()
    assert (done.code, done.out) == (0, Path("/usr/bin/env").read_bytes()), done.err


def test_a_pod_that_is_not_there_is_named(job):
    done = job.launch("mslaunch", "--rsh-agent", KUBECTL, "-H", f"{WORKERS[0]},no-pod", "hostname", env={}).end()
    assert done.code == 1
    assert 'pods "no-pod" not found' in done.err


def test_a_launcher_that_is_deleted_ends_ranks_behind_kubectl(job):
    launcher = job.launch("mpirun", "-n", 2, "sh", "-c", WAITS, env=ENV)
    launcher.expect(b"ready", 2)
    launcher.signal(signal.SIGTERM)
    done = launcher.end()
    assert (done.code, done.out.count(b"saved")) == (1, 2), done.err
    job.wait_quiet(LEASED)


def test_agents_end_by_themselves_where_kubectl_is_gone(job):
    """Nothing tells a process in a pod that its client is gone (KEP-4006 changes nothing there): --lease does."""
    launcher = job.launch("mpirun", "--lease", 1, "-n", 2, "sh", "-c", WAITS, env=ENV)
    launcher.expect(b"ready", 2)
    launcher.kill()
    job.wait_quiet()
