"""A cluster of real hosts, and jobs that the real command starts from its head, with bounded waits.

Processes of a host are found in this machine's own /proc, by the pid namespace of the host's sshd: that needs no login
and no command there, and finds processes that have changed their parent, session or name.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "cluster"
RING = ROOT / "examples" / "ring.py"
BOUND = 30.0  #: seconds for anything that should take one; the machine may be busy
CORES = len(os.sched_getaffinity(0))

MARKS = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]


class Result(NamedTuple):
    """How a launch ended."""

    code: int
    out: bytes
    err: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        """Its output, sorted: ranks print in any order."""
        return sorted(self.out.decode().splitlines())


class Job:
    """One launch from the head, running."""

    def __init__(self, command: list[str], **how: Any) -> None:
        self.began = time.monotonic()
        self.cwd = how.get("cwd")
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        self.process = subprocess.Popen(command, start_new_session=True, **how)
        self.out = b""

    def expect(self, word: bytes, count: int = 1) -> None:
        """Read its output until `word` was there `count` times."""
        deadline = time.monotonic() + BOUND
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while self.out.count(word) < count:
                assert selector.select(deadline - time.monotonic()), f"no {word!r} x {count} in {self.out!r}"
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                assert data, f"the end came before {word!r} x {count}: {self.out!r} {self.process.stderr.read()!r}"
                self.out += data

    @property
    def launcher(self) -> int:
        """The launcher itself: the child of `cluster exec`, as this machine counts."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def end(self, bound: float = BOUND) -> Result:
        """Wait for its end, reading what it says."""
        out, err = self.process.communicate(timeout=bound)
        seconds = time.monotonic() - self.began
        return Result(self.process.returncode, self.out + (out or b""), (err or b"").decode(), seconds)

    def destroy(self) -> None:
        """After a test that failed; the launcher goes with its stand-in."""
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdout, self.process.stderr, self.process.stdin):
            if stream:
                stream.close()
        self.process.wait(10)


class Cluster:
    """Real hosts, driven by `scripts/cluster`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def command(self, verb: str, *words: object) -> list[str]:
        return [sys.executable, "-S", str(SCRIPT), verb, "--dir", str(self.directory), *map(str, words)]

    def __call__(self, verb: str, *words: object, **how: Any) -> str:
        """Run a verb; its standard output.  Fails with what it said."""
        done = subprocess.run(
            self.command(verb, *words), capture_output=True, text=True, timeout=BOUND, check=False, **how
        )
        if "modprobe tun" in done.stderr:
            pytest.skip("neither netem nor tun in this kernel")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def on(self, host: str, script: str) -> str:
        """What a shell there prints."""
        return self("exec", host, "sh", "-c", script, cwd="/")

    def start(self, *words: object, cwd: Path, env: dict[str, str] | None = None, **how: Any) -> Job:
        """The command, on the head, with the environment of a user who has set nothing."""
        return self.start_on("head", *words, cwd=cwd, env=env, **how)

    def start_on(self, host: str, *words: object, cwd: Path, env: dict[str, str] | None = None, **how: Any) -> Job:
        """The same on another host."""
        kept = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", **(env or {})}
        return Job(self.command("exec", host, sys.executable, "-m", "mslaunch", *words), cwd=cwd, env=kept, **how)

    def home(self, host: str) -> Path:
        return self.directory / "home" / host

    def processes(self, host: str) -> dict[int, str]:
        """What lives there but for its first process, by this machine's pids."""
        state = json.loads((self.directory / "state.json").read_text())
        place = next(place for place in state["places"] if place[0] == host)
        first = place[2][0]
        space = os.readlink(f"/proc/{first}/ns/pid")
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                alive = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                if alive and int(name) != first and os.readlink(f"/proc/{name}/ns/pid") == space:
                    words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(name)] = words.decode("utf-8", "replace")
            except OSError:  # it has just ended
                continue
        return found

    def all_processes(self, hosts: int, head: bool = True) -> dict[str, dict[int, str]]:
        """The same for `hosts` hosts and the head; those without any are left out."""
        names = ["head"] * head + names_of(hosts)
        return {name: found for name in names if (found := self.processes(name))}

    def wait_quiet(self, hosts: int, bound: float = BOUND) -> None:
        """Until nothing runs anywhere but each host's sshd and the head's sleep."""
        wait_until(lambda: not self.all_processes(hosts), bound, lambda: f"still there: {self.all_processes(hosts)}")


def names_of(hosts: int) -> list[str]:
    return [f"n{number:02d}" for number in range(1, hosts + 1)]


@contextmanager
def cluster_of(hosts: int, directory: Path, *options: object) -> Iterator[Cluster]:
    """Up, and down again."""
    cluster = Cluster(directory)
    cluster("up", hosts, *options)
    try:
        yield cluster
    finally:
        cluster("down")


def wait_until(true: Callable[[], Any], bound: float = BOUND, tell: Callable[[], str] = lambda: "it never was") -> None:
    """Poll what has no event to wait for; fails after `bound` seconds."""
    deadline = time.monotonic() + bound
    while not true():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.02)


@contextmanager
def edited(path: Path, text: str) -> Iterator[None]:
    """Another text in a file, written in place (some are bind mounts), and the old one back."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
