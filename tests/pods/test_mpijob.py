"""MPIJob v2beta1 of mpi-operator: launcher and workers as its controller makes them, with mslaunch as the command.

Three pods, pi-launcher without sshd, pi-worker-0 and pi-worker-1 with one; uid 1000 and port 2222 as in the operator's
images, except where a test says otherwise.
"""

from __future__ import annotations

import signal

import operators
import pytest
from operators import Job, intel, mpich
from pods import MARKS, Container, Pods, make_key

pytestmark = MARKS
FIRST, SECOND = (f"pi-worker-{number}.pi.ns.svc" for number in (0, 1))
LAUNCHER = "pi-launcher.pi.ns.svc"
KEY = ("ecdsa", "-b", "521")
RANK = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname) as $(id -u)"'
WAITS = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
IGNORES = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
DEVICES = 'echo "${NVIDIA_VISIBLE_DEVICES-unset} ${NVIDIA_DRIVER_CAPABILITIES-unset}"'


@pytest.fixture(scope="module")
def pi(pods: Pods) -> Job:
    """Nothing runs yet."""
    names = ("pi-launcher", "pi-worker-0", "pi-worker-1")
    job = Job(pods, "pi", names, make_key(pods.directory, *KEY))
    job.publish()
    return job


@pytest.fixture(autouse=True)
def _published(pi: Job) -> None:
    pi.publish()


# --- workers that come and go


def test_suspension_ends_workers_and_launcher_at_one_time(pods, pi):
    """Their sshd is process 1 there: it ends at once, and the kernel ends the ranks with it."""
    pi.hostfile(f"{FIRST} slots=1", f"{SECOND} slots=1")
    workers = [pi.start_sshd(worker) for worker in pi.workers]
    launcher = pi.launch("mpirun", "-n", 2, "sh", "-c", WAITS, env=mpich())
    launcher.expect(b"ready", 2)
    for container in (*workers, launcher):
        container.signal(signal.SIGTERM)
    done = launcher.end()
    assert done.code in (1, 255), done.err
    assert done.seconds < 20


# --- workers that stay


@pytest.fixture(scope="module")
def workers(pi: Job) -> list[Container]:
    """They listen."""
    return [pi.start_sshd(worker) for worker in pi.workers]


@pytest.mark.parametrize(
    ("implementation", "lines", "command"),
    [
        (intel(), (f"{FIRST}:1", f"{SECOND}:1"), "mpirun"),
        (mpich(), (f"{FIRST}:1", f"{SECOND}:1"), "mpiexec.hydra"),
        (mpich(), (f"{FIRST}:1", f"{SECOND}:1"), "mslaunch"),
    ],
    ids=["intel", "mpich mpiexec.hydra", "mpich mslaunch"],
)
def test_each_implementation(pi, workers, implementation, lines, command):
    """The operator's examples pi.yaml, pi-intel.yaml and pi-mpich.yaml."""
    pi.hostfile(*lines)
    script = f'echo "$(hostname) $(id -u) $(pwd)"; {DEVICES}'
    done = pi.launch(command, "-n", 2, "sh", "-c", script, env={**implementation, **operators.WITHOUT_DEVICES}).end()
    assert (done.code, done.lines) == (
        0, ["pi-worker-0 1000 /", "pi-worker-1 1000 /", "unset unset", "unset unset"]
    ), done.err  # fmt: skip
    assert done.err == ""
    for worker in workers:
        worker.wait_quiet()


# --- the end of a launcher


def test_a_launcher_that_is_deleted_ends_its_ranks_first(pi, workers):
    """Suspension and deletion: TERM to process 1, and KILL 30 s later."""
    pi.hostfile(f"{FIRST} slots=1", f"{SECOND} slots=1")
    launcher = pi.launch("mpirun", "-n", 2, "sh", "-c", WAITS, env={**mpich(), "MSLAUNCH_GRACE": "25"})
    launcher.expect(b"ready", 2)
    launcher.signal(signal.SIGTERM)
    done = launcher.end()
    assert (done.code, done.out.count(b"saved")) == (1, 2), done.err
    assert done.seconds < 20
    for worker in workers:
        worker.wait_quiet()


def test_a_launcher_that_is_killed_leaves_nothing(pi, workers):
    """The grace was too short: no process of the launcher's pod can end anything."""
    launcher = pi.launch("mpirun", "-n", 2, "sh", "-c", IGNORES, env=mpich())
    launcher.expect(b"ready", 2)
    launcher.kill()
    for worker in workers:
        worker.wait_quiet()
