"""Shared by tests with the real MindSpore: launching a training, here or on hosts of a cluster.

MSLAUNCH_TEST_MINDSPORE_PYTHON names the interpreter of a venv with examples/mindspore/requirements.txt.  Processes of a
job are identified by their environment: MS_ROLE and MS_NODE_ID name the process, a mark of its own the launch.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "hosts"))
from clusters import Cluster, cluster_of, wait_until

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples" / "mindspore"
NET = EXAMPLES / "net.py"
LAUNCHER = [sys.executable, "-m", "mslaunch"]
PYTHON = os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", "")
SECONDS = 180  #: two ranks take about 15 on a quiet machine, four about 25
MARK = "A_TEST_OF_MSLAUNCH"  #: a variable that every process of one launch inherits; those named MSLAUNCH_ are not
CRASHED = 128 + signal.SIGSEGV

MARKS = [
    pytest.mark.mindspore,
    pytest.mark.slow,
    pytest.mark.limit(2 * SECONDS + 30),
    pytest.mark.skipif(
        not os.access(PYTHON, os.X_OK),
        reason=f"MSLAUNCH_TEST_MINDSPORE_PYTHON is {PYTHON!r}: it should name a Python that has MindSpore",
    ),
]

HOSTS = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]


def environment(**more: str) -> dict[str, str]:
    """Of a user whose `python` is the one with MindSpore, and who may import the launcher."""
    path = f"{Path(PYTHON).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(PROJECT), "MS_TOPO_TIMEOUT": str(SECONDS // 2), **more}


class Job:
    """A command that runs; what it prints goes to files, so that nobody has to read along."""

    def __init__(self, words: list[str], directory: Path, env: dict[str, str]) -> None:
        self._directory = directory
        self.out, self.err = directory / "job.out", directory / "job.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                words, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    def end(self, seconds: float = SECONDS) -> int:
        """Its exit code; where none comes, the test fails with all that can be known of why."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end after {seconds} s\n{self.said}\n{stuck(self._directory)}", pytrace=False)

    @property
    def said(self) -> str:
        """By the launcher, for messages of tests as well."""
        return self.err.read_text(errors="replace")[-4000:]

    @property
    def notices(self) -> list[str]:
        """The lines that the launcher itself has said."""
        return re.findall(r"^mslaunch: .*$", self.err.read_text(errors="replace"), re.M)

    def wait_for(self, text: str, file: Path) -> None:
        """Until the file has this text; fails if the command has ended without."""

        def there() -> bool:
            over = self.process.poll() is not None  # looked at first: it may write, and end
            found = file.exists() and text in file.read_text(errors="replace")
            assert found or not over, f"the end came before {text!r} in {file}\n{self.said}"
            return found

        wait_until(there, SECONDS, lambda: f"no {text!r} in {file}\n{self.said}")

    def destroy(self) -> None:
        """After a test that failed."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


class Launch:
    """The command here, with a directory of its own, and a mark by which its processes are known."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mark = f"{MARK}={directory}"
        self._jobs: list[Job] = []

    def start(self, *words: str, **more: str) -> Job:
        """Begin; `more` are variables."""
        env = environment(**{MARK: str(self.directory)}, **more)
        self._jobs.append(Job([*LAUNCHER, *words], self.directory, env))
        return self._jobs[-1]

    def __call__(self, *words: str, **more: str) -> Job:
        """To its end."""
        job = self.start(*words, **more)
        job.end()
        return job

    def train(self, ranks: int, words: list[str], log: Callable[[int], Path]) -> Job:
        """Train; once more if MindSpore 2.10 crashed while its interpreter was leaving.

        It does now and then with four ranks on two cores, started by hand as well (1 of 11 runs of a bare AllReduce).
        The launcher is right to report that, so the only run that is repeated is one in which the rank that crashed
        had said before that all was well.
        """
        job = self(*words)
        crashed = re.search(r"^mslaunch: rank (\d+) was ended by SIGSEGV", "\n".join(job.notices), re.M)
        good = f"parameters equal on all {ranks} ranks"
        if job.process.returncode == CRASHED and crashed and good in log(int(crashed[1])).read_text():
            print(f"MindSpore crashed at the exit of rank {crashed[1]}; once more")
            return self(*words)
        return job

    def left(self) -> dict[int, str]:
        """pid → command line of the processes that are still there."""
        return {pid: cmdline(pid) for pid in having(self._mark)}

    def pid(self, *variables: str) -> int:
        """The one process of this launch that has these in its environment."""
        (pid,) = having(self._mark, *variables)
        return pid

    def destroy(self) -> None:
        for job in self._jobs:
            job.destroy()


@contextmanager
def launch_in(directory: Path) -> Iterator[Launch]:
    """A launch; nothing may be left of it."""
    launch = Launch(directory)
    try:
        yield launch
    finally:
        launch.destroy()
    assert launch.left() == {}


@contextmanager
def hosts_in(directory: Path, number: int) -> Iterator[Cluster]:
    """Real hosts; whoever logs in there has the `python` with MindSpore."""
    with cluster_of(number, directory / "c") as cluster:
        for home in (cluster.directory / "home").glob("n*"):
            (home / ".bashrc").write_text(f"export PATH={Path(PYTHON).parent}:$PATH\n")
        yield cluster


@contextmanager
def started(cluster: Cluster, host: str, words: list[str], directory: Path, **more: str) -> Iterator[Job]:
    """A command on one of them; `more` are variables."""
    directory.mkdir(exist_ok=True)
    job = Job(cluster.command("exec", host, *words), directory, environment(**more))
    try:
        yield job
    finally:
        job.destroy()


def wait_quiet(cluster: Cluster, *hosts: str) -> None:
    """Until nothing runs on these; others may be dead."""
    wait_until(lambda: not any(map(cluster.processes, hosts)))


def having(*variables: str) -> list[int]:
    """The processes of this machine that were started with all of these ("NAME=value")."""
    return [pid for pid, words in environments() if all(word.encode() in words for word in variables)]


def environments() -> Iterator[tuple[int, list[bytes]]]:
    """pid and "NAME=value" of all processes of this machine."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield int(process.name), (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue


def stuck(directory: Path) -> str:
    """Of a job that does not end: where its threads are, and the last lines of its logs."""
    found = []
    for pid, words in environments():
        role = next((word for word in words if word.startswith(b"MS_ROLE=")), b"")
        if role:
            found.append(f"== {role.decode()}, {pid}: …{cmdline(pid)[-100:]}\n{threads(pid)}")
    for log in sorted(directory.rglob("*.log*")):
        found.append(f"== {log.relative_to(directory)}\n{log.read_text(errors='replace')[-3000:]}")
    return "\n".join(found)


def threads(pid: int) -> str:
    """The stacks of a process, where there is gdb to tell; else what the kernel knows of each of its threads."""
    debugger = shutil.which("gdb")
    if debugger:
        words = [debugger, "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        lines = done.stdout.decode(errors="replace").splitlines()
        return "\n".join(line for line in lines if line[:1] == "#" or "LWP" in line)[-12000:]
    tasks = sorted(Path(f"/proc/{pid}/task").glob("[0-9]*/wchan"))
    return "\n".join(f"{task.parent.name} {task.read_text()}" for task in tasks)


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def check_training(text: str, rank: int, ranks: int) -> None:
    """What net.py prints where all is well."""
    last = re.search(rf"^rank {rank}/{ranks}: loss (\S+) -> (\S+), parameters equal on all {ranks} ranks$", text, re.M)
    assert last, text[-4000:]
    assert float(last[2]) < float(last[1]) / 2
    assert len(re.findall(rf"^rank {rank}/{ranks}: epoch \d, loss", text, re.M)) == 10


def final_loss(text: str) -> str:
    """What net_recovery.py and its like print in the end, digit by digit."""
    found = re.findall(r"loss (\S+), parameters equal on all \d+ ranks$", text, re.M)
    assert len(found) == 1, text[-4000:]
    return str(found[0])
