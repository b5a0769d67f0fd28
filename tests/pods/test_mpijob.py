"""MPIJob v2beta1 of mpi-operator: launcher and workers as its controller makes them, with mslaunch as the command.

Three pods, pi-launcher without sshd, pi-worker-0 and pi-worker-1 with one; uid 1000 and port 2222 as in the operator's
images, except where a test says otherwise.
"""

from __future__ import annotations

import signal

import operators
import pytest
from operators import Job, intel, mpich, open_mpi
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


@pytest.mark.parametrize(
    ("implementation", "slots", "command"),
    [(open_mpi(), " slots=1", "mpirun"), (intel(), ":1", "mpirun"), (mpich(), ":1", "mpiexec.hydra")],
    ids=["open mpi", "intel", "mpich"],
)
def test_workers_that_come_later_than_the_launcher(pods, pi, implementation, slots, command):
    """launcherCreationPolicy AtStartup: names that do not resolve yet, then hosts on which nothing listens yet."""
    pods.publish(pi.launcher)
    pi.hostfile(FIRST + slots, SECOND + slots)
    launcher = pi.launch(command, "-n", 2, "sh", "-c", "hostname", env=implementation)
    names = [worker.full for worker in pi.workers]
    pods.names.wait_asked(names, 2, found=False)
    pi.publish()
    pods.names.wait_asked(names, 2, found=True)
    workers = [pi.start_sshd(worker) for worker in pi.workers]
    done = launcher.end()
    assert (done.code, done.lines) == (0, ["pi-worker-0", "pi-worker-1"]), done.err
    for worker in workers:
        worker.wait_quiet()


def test_suspension_ends_workers_and_launcher_at_one_time(pods, pi):
    """Their sshd is process 1 there: it ends at once, and the kernel ends the ranks with it."""
    pi.hostfile(f"{FIRST} slots=1", f"{SECOND} slots=1")
    workers = [pi.start_sshd(worker) for worker in pi.workers]
    launcher = pi.launch("mpirun", "-n", 2, "sh", "-c", WAITS, env=open_mpi())
    launcher.expect(b"ready", 2)
    for container in (*workers, launcher):
        container.signal(signal.SIGTERM)
    done = launcher.end()
    assert done.code in (1, 205), done.err
    assert done.seconds < 20


# --- workers that stay


@pytest.fixture(scope="module")
def workers(pi: Job) -> list[Container]:
    """They listen."""
    return [pi.start_sshd(worker) for worker in pi.workers]


@pytest.mark.parametrize(
    ("implementation", "lines", "command"),
    [
        (open_mpi(), (f"{FIRST} slots=1", f"{SECOND} slots=1"), "mpirun"),
        (open_mpi(), (f"{FIRST} slots=1", f"{SECOND} slots=1"), "mslaunch"),
        (intel(), (f"{FIRST}:1", f"{SECOND}:1"), "mpirun"),
        (mpich(), (f"{FIRST}:1", f"{SECOND}:1"), "mpiexec.hydra"),
        (mpich(), (f"{FIRST}:1", f"{SECOND}:1"), "mslaunch"),
    ],
    ids=["mpirun", "mslaunch", "intel", "mpich mpiexec.hydra", "mpich mslaunch"],
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


def test_the_launcher_as_a_worker_is_not_called(pi, workers):
    """runLauncherAsWorker: the launcher's own name is the first line, and no sshd listens there."""
    pi.hostfile(f"{LAUNCHER} slots=2", f"{FIRST} slots=2", f"{SECOND} slots=2")
    done = pi.launch("mpirun", "-n", 5, "sh", "-c", RANK, env={**open_mpi(2), "NVIDIA_VISIBLE_DEVICES": "all"}).end()
    expected = [(0, "launcher"), (1, "launcher"), (2, "worker-0"), (3, "worker-0"), (4, "worker-1")]
    assert (done.code, done.lines) == (0, [f"{rank} of 5 on pi-{where} as 1000" for rank, where in expected]), done.err


BENCHMARKS = """--allow-run-as-root -np 2 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH
-mca pml ob1 -mca btl ^openib python"""  # examples/v2beta1/tensorflow-benchmarks


def test_the_line_of_tensorflow_benchmarks(pods, pi):
    """As root, with sshAuthMountPath /root/.ssh: mode 0600; the program's exit code is that of the container."""
    root = Job(
        pods, "pi-root", [pod.name for pod in (pi.launcher, *pi.workers)], make_key(pods.directory, *KEY), mode=0o600
    )
    for worker in pi.workers:
        root.start_root_sshd(worker)
    root.hostfile(f"{FIRST} slots=1", f"{SECOND} slots=1")
    facts = "{os.uname()[1]} {os.getuid()} {e['NCCL_DEBUG']} {e['OMPI_MCA_pml']}"
    show = f'import os; e = os.environ; os.write(1, f"{facts}\\n".encode())'
    env = {**open_mpi(), **operators.WITHOUT_DEVICES}
    done = root.launch_as_root("mpirun", *BENCHMARKS.split(), "-c", show, env=env).end()
    assert (done.code, done.lines) == (0, [f"pi-worker-{number} 0 INFO ob1" for number in (0, 1)]), done.err
    assert "LD_LIBRARY_PATH" in done.err
    fails = "import os; raise SystemExit(9 * int(os.environ['OMPI_COMM_WORLD_RANK']))"
    done = root.launch_as_root("mpirun", *BENCHMARKS.split(), "-c", fails, env=env).end()
    assert done.code == 9, done.err


# --- the end of a launcher


def test_a_launcher_that_is_deleted_ends_its_ranks_first(pi, workers):
    """Suspension and deletion: TERM to process 1, and KILL 30 s later."""
    pi.hostfile(f"{FIRST} slots=1", f"{SECOND} slots=1")
    launcher = pi.launch("mpirun", "-n", 2, "sh", "-c", WAITS, env={**open_mpi(), "MSLAUNCH_GRACE": "25"})
    launcher.expect(b"ready", 2)
    launcher.signal(signal.SIGTERM)
    done = launcher.end()
    assert (done.code, done.out.count(b"saved")) == (1, 2), done.err
    assert done.seconds < 20
    for worker in workers:
        worker.wait_quiet()


def test_a_launcher_that_is_killed_leaves_nothing(pi, workers):
    """The grace was too short: no process of the launcher's pod can end anything."""
    launcher = pi.launch("mpirun", "-n", 2, "sh", "-c", IGNORES, env=open_mpi())
    launcher.expect(b"ready", 2)
    launcher.kill()
    for worker in workers:
        worker.wait_quiet()
