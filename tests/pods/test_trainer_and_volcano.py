"""Kubeflow Trainer v2's MPI runtime, and a job of Volcano with its mpi, svc and ssh plugins, started by mslaunch."""

from __future__ import annotations

import pytest
from operators import Job
from pods import MARKS, Pods, make_key

pytestmark = MARKS
SCRIPT = 'echo "$OMPI_COMM_WORLD_RANK on $(hostname) as $(id -u) $OMPI_COMM_WORLD_LOCAL_SIZE"'


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
PROGRAM = "import os; print(os.environ['OMPI_COMM_WORLD_RANK'], os.uname().nodename, os.getuid())"


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
