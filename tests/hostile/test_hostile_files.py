"""Files that the launcher reads for its user and that are none: FIFOs, devices, directories, files without end.

No one of them may block the launcher, fill its memory or keep it from ending; a pipe that the user's shell gives works.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launching import COMMAND, Job, environment, wait_until

from mslaunch.errors import LinkError
from mslaunch.host import files
from mslaunch.host.files import MOST
from mslaunch.transport.ssh.config.ssh_config import HostConfig, Resolver
from mslaunch.transport.ssh.host_key_rules import refuse_key
from mslaunch.transport.ssh.known_hosts import HostKeyCheck
from mslaunch.transport.ssh.user_keys import read_key, read_public

BOUND = 30.0
MEMORY = 1 << 29  # bytes of address space for a launcher that reads such a file
READERS = {
    "hostfile": ["--hostfile", "{}", "-n", "1", "true"],
    "default hostfile": ["--default-hostfile", "{}", "-n", "1", "true"],
    "rankfile": ["--rankfile", "{}", "-n", "1", "true"],
    "tune": ["--tune", "{}", "-n", "1", "true"],
    "am": ["-am", "{}", "-n", "1", "true"],
    "app": ["--app", "{}"],
    "openmpi": ["--backend", "openmpi", "--hostfile", "{}", "-n", "1", "true"],
    "hydra hosts": ["--dialect", "hydra", "-f", "{}", "-n", "1", "true"],
    "hydra config": ["--dialect", "hydra", "-configfile", "{}"],
    "msrun numa": ["--dialect", "msrun", "--worker_num=1", "--local_worker_num=1", "--bind_numa={}", "true.py"],
}


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def link_to_fifo(folder: Path) -> Path:
    (folder / "link").symlink_to(fifo(folder))
    return folder / "link"


def sparse(folder: Path) -> Path:
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 30)
    return folder / "sparse"


#: what takes the place of the file -> what the launcher says of it
BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "directory": (lambda folder: folder, "directory"),
    "zero": (lambda folder: Path("/dev/zero"), "it is a device"),
    "sparse": (sparse, "it is larger than 16 MiB"),
}


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def launch(words: list[str], folder: Path, **how: object) -> subprocess.CompletedProcess[bytes]:
    how = {"stdin": subprocess.DEVNULL, "cwd": folder, "env": environment(), "preexec_fn": limited, **how}
    return subprocess.run([*COMMAND, *words], capture_output=True, timeout=BOUND, check=False, **how)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("reader", ["hostfile", "rankfile", "tune", "app", "hydra hosts", "hydra config", "msrun numa"])
def test_what_is_no_file_is_refused_with_one_message(tmp_path: Path, reader: str, kind: str) -> None:
    make, why = BAD[kind]
    path = make(tmp_path)
    done = launch([word.format(path) for word in READERS[reader]], tmp_path)
    assert (done.returncode, done.stdout) != (0, b"")
    text = done.stderr.decode()
    assert why in text and str(path) in text and "Traceback" not in text, text
    assert len([line for line in text.splitlines() if line.startswith("mslaunch: ")]) == 1, text


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """A launcher that waits for a FIFO without a writer: `waiting(READER, make)`."""
    jobs: list[Job] = []

    def start(reader: str, make: Callable[[Path], Path]) -> Job:
        path = make(tmp_path)
        jobs.append(Job([word.format(path) for word in READERS[reader]], environment(), cwd=tmp_path))
        real = os.path.realpath(path)
        wait_until(lambda: real in held(jobs[0].pid) or jobs[0].process.poll() is not None)
        return jobs[0]

    yield start
    for job in jobs:
        job.destroy()


def held(pid: int) -> list[str]:
    """The files that a process has open."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
@pytest.mark.parametrize("reader", ["hostfile", "tune", "openmpi", "hydra config"])
def test_a_signal_ends_the_wait_for_a_fifo(
    waiting: Callable[..., Job], need: Callable[..., str], reader: str, signum: int
) -> None:
    if reader == "openmpi":
        need("mpirun", "mpirun.openmpi")
    job = waiting(reader, fifo if signum == signal.SIGINT else link_to_fifo)
    assert job.process.poll() is None
    job.send(signum)
    done = job.end(BOUND)
    assert done.code != 0 and "Traceback" not in done.err, done


def test_a_time_limit_ends_the_wait_for_a_fifo(tmp_path: Path) -> None:
    done = launch(["--timeout", "1", "--hostfile", str(fifo(tmp_path)), "true"], tmp_path)
    assert done.returncode != 0 and b"within 1 s" in done.stderr


def test_a_fifo_that_nobody_writes_to_is_given_up(tmp_path: Path) -> None:
    done = launch(["--hostfile", str(fifo(tmp_path)), "true"], tmp_path)
    assert done.returncode != 0 and b"it is a FIFO that nobody writes to; waited 5 s" in done.stderr


def test_a_pipe_without_end_is_refused(tmp_path: Path) -> None:
    script = f"{' '.join(COMMAND)} --hostfile <(yes '# no host') -n 1 true"
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), cwd=tmp_path, capture_output=True, timeout=BOUND, check=False
    )
    assert done.returncode != 0 and b"it is larger than 16 MiB" in done.stderr, done


@pytest.mark.parametrize(
    "words",
    [
        "--hostfile <(sleep 0.2; echo localhost slots=3) -n 3",
        "--hostfile /dev/stdin -n 3 < <(echo localhost slots=3)",
        "--hostfile hosts -n 3 & echo localhost slots=3 > hosts; wait $!; true",
        "--tune <(echo -x A=b) -n 3",
        "--tune /dev/null -n 3",
    ],
)
def test_what_a_shell_gives_is_read(tmp_path: Path, words: str) -> None:
    os.mkfifo(tmp_path / "hosts")
    options, mark, rest = words.partition(" &")
    options, less, stdin = options.partition(" <") if "stdin" in options else (options, "", "")
    script = f"{' '.join(COMMAND)} {options} echo ran {less}{stdin}{mark}{rest}"
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), cwd=tmp_path, capture_output=True, timeout=BOUND, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"ran\n" * 3), (script, done)


def of_host(home: Path, text: str) -> HostConfig:
    """What a file of -F says of a host."""
    (home / "given").write_text(text)
    return Resolver({"HOME": str(home)}, ["-F", str(home / "given")], os.devnull).host("n01")


def own_config(home: Path, path: str) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").symlink_to(path)
    Resolver({"HOME": str(home)}, (), os.devnull).host("n01")


def known_hosts(home: Path, path: str) -> None:
    """With accept-new an empty list would accept a key that has changed."""
    HostKeyCheck(True, print).verify(of_host(home, f"UserKnownHostsFile {path}"), "ssh-ed25519", b"key")


#: a file of SSH -> what reads the one at a path, in a home directory
SSH_READERS: dict[str, Callable[[Path, str], object]] = {
    "config": own_config,
    "included": lambda home, path: of_host(home, f"Include {path}"),
    "known_hosts": known_hosts,
    "revoked": lambda home, path: refuse_key(of_host(home, f"RevokedHostKeys {path}"), "ssh-ed25519", b"key"),
}


@pytest.fixture(params=["fifo", "sparse", "zero"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The path of one; the time that a FIFO has for its writer is short, and memory is counted."""
    monkeypatch.setattr(files, "WRITER_SECONDS", 0.01)
    made = {"fifo": fifo, "sparse": sparse, "zero": lambda folder: Path("/dev/zero")}[request.param](tmp_path)
    tracemalloc.start()
    yield str(made)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * MOST


@pytest.mark.parametrize("reader", SSH_READERS)
def test_an_ssh_file_that_is_none_neither_blocks_nor_fills(tmp_path: Path, no_file: str, reader: str) -> None:
    """It is refused, for what it should hold may be a rule."""
    with pytest.raises(LinkError, match=r"cannot be read: it is |Bad owner or permissions"):
        SSH_READERS[reader](tmp_path, no_file)


def test_an_ssh_key_that_is_no_file_is_no_key(no_file: str) -> None:
    assert "it is " in read_key(no_file).trouble
    assert read_public(no_file) == b""
