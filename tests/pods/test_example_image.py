"""examples/kubernetes: what its image holds, in pods: the sshd and ssh that it configures, and its MPIJob's command."""

from __future__ import annotations

from pathlib import Path

import pytest
from operators import PORT, Job, mpich
from pods import HOME, MARKS, Pods, make_key, sshd, wait_until

yaml = pytest.importorskip("yaml")
pytestmark = MARKS
PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples" / "kubernetes"
ETC = {
    "ssh/ssh_config": (EXAMPLES / "ssh_config").read_text(encoding="utf-8"),
    "mpiuser.sshd_config": (EXAMPLES / "sshd_config").read_text(encoding="utf-8"),
}


def command(kind: str) -> list[str]:
    """Of a replica of mpijob.yaml, with the files where they are here."""
    with (EXAMPLES / "mpijob.yaml").open(encoding="utf-8") as file:
        spec = yaml.safe_load(file)["spec"]["mpiReplicaSpecs"][kind]["template"]["spec"]
    places = {"/usr/sbin/sshd": sshd(), f"{HOME}/.sshd_config": "/etc/mpiuser.sshd_config"}
    places["/opt/mslaunch/ring.py"] = str(PROJECT / "examples" / "ring.py")
    return [places.get(word, word) for word in spec["containers"][0]["command"]]


def test_the_ring_of_the_example_closes(pods: Pods) -> None:
    names = [f"ring-worker-{at}" for at in (0, 1)]
    job = Job(pods, "ring", ["ring-launcher", *names], make_key(pods.directory, "ecdsa", "-b", "521"))
    job.publish()
    job.hostfile(*(f"{name}.ring.ns.svc:2" for name in names))
    workers = [
        pods.run(worker, command("Worker"), env={}, etc=ETC, mounts={f"{HOME}/.ssh": job.ssh.path})
        for worker in job.workers
    ]
    for worker in workers:
        wait_until(lambda worker=worker: worker.listens(PORT))
    done = job.launch(*command("Launcher"), env=mpich(), etc=ETC).end()
    assert done.code == 0, done.err
    assert b"[1,3]<stdout>:" in done.out
    for worker in workers:
        worker.wait_quiet()
