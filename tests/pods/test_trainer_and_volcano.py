"""Kubeflow Trainer v2's MPI runtime, and a job of Volcano with its mpi, svc and ssh plugins, started by mslaunch."""

from __future__ import annotations

import pytest
from operators import Job, open_mpi
from pods import MARKS, USER, Pods, make_key

pytestmark = MARKS
SCRIPT = 'echo "$OMPI_COMM_WORLD_RANK on $(hostname) as $(id -u) $OMPI_COMM_WORLD_LOCAL_SIZE"'


# --- Kubeflow Trainer


@pytest.fixture(scope="module")
def train(pods: Pods) -> Job:
    """Keys of mode 0640 that belong to root and fsGroup (`MPISSHPrivateKeyFileMode`); nodes are ready before."""
    key = make_key(pods.directory, "ecdsa", "-b", "521")
    names = ("train-launcher-0-0", "train-node-0-0")
    job = Job(pods, "train", names, key, mode=0o644, group=USER, id_rsa=0o640)
    job.start_sshd(job.workers[0], groups=[USER])
    return job


@pytest.mark.parametrize("command", ["mpirun", "mslaunch"])
def test_the_runtime_of_trainer(train, command):
    """runLauncherAsNode: the launcher, which has no sshd, is the first host; names have no namespace."""
    train.publish()
    train.hostfile("train-launcher-0-0.train slots=2", "train-node-0-0.train slots=2")
    done = train.launch(command, "sh", "-c", SCRIPT, env=open_mpi(2), groups=[USER]).end()
    expected = [f"{rank} on train-{'launcher' if rank < 2 else 'node'}-0-0 as 1000 2" for rank in range(4)]
    assert (done.code, done.lines, done.err) == (0, expected, "")


# --- Volcano

WORKERS = ("lm-mpi-job-mpiworker-0", "lm-mpi-job-mpiworker-1")
#: `generateSSHConfig` of pkg/controllers/job/plugins/ssh
CONFIG = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n" + "".join(
    f"Host {name}\n  HostName {name}.lm-mpi-job\n  Port 22\n" for name in ("lm-mpi-job-mpimaster-0", *WORKERS)
)
#: example/integrations/mpi/mpi-example.yaml, with --prefix and python as in MindSpore-example/mindspore_gpu
EXAMPLE = """
MPI_HOST=`cat /etc/volcano/mpiworker.host | tr "\\n" ","`;
mpiexec --allow-run-as-root --host ${MPI_HOST} -np 2 --prefix /usr/local/openmpi-3.1.5 python -c "$PROGRAM";
"""
FACTS = "{os.environ['OMPI_COMM_WORLD_RANK']} {os.uname().nodename} {os.getuid()}"
PROGRAM = f'import os; os.write(1, f"{FACTS}\\n".encode())'


@pytest.fixture(scope="module")
def volcano(pods: Pods) -> Job:
    """As root, port 22, an RSA key in PKCS#1, and ~/.ssh/config from the secret, which is a subPath: no links in it."""
    key = {**make_key(pods.directory, "rsa", "-b", "2048"), "config": CONFIG}
    job = Job(pods, "lm-mpi-job", ("lm-mpi-job-mpimaster-0", *WORKERS), key, mode=0o600)
    job.config.write({"mpiworker.host": "\n".join(f"{name}.lm-mpi-job" for name in WORKERS)})
    for worker in job.workers:
        job.start_root_sshd(worker)
    return job


@pytest.mark.parametrize("hosts", ["", ",".join(f"{name}.lm-mpi-job" for name in WORKERS), ",".join(WORKERS) + ","])
def test_a_job_of_volcano(volcano, hosts):
    """Its example; MPI_HOST of the mpi plugin; and the pods' own names, which only the ssh plugin's config explains."""
    volcano.publish()
    example = EXAMPLE if not hosts else EXAMPLE.replace("MPI_HOST=`", "UNUSED=`")
    env = {"MPI_HOST": hosts, "VC_TASK_INDEX": "0", "VK_TASK_INDEX": "0", "PROGRAM": PROGRAM}
    mounts = {"/root/.ssh": volcano.ssh.current, "/etc/volcano": volcano.config.path}
    done = volcano.launch_as_root("sh", "-c", example, env=env, mounts=mounts, directory="/home").end()
    assert (done.code, done.lines, done.err) == (0, [f"{rank} {name} 0" for rank, name in enumerate(WORKERS)], "")
