"""Runs the command as a user does, and watches it: bounded waits for events, and a count of processes left behind.

Every job gets a variable of its own, TEST_MARK_..., which its ranks inherit (on all "hosts": `programs/rsh` passes it
on), so that processes left behind are found in /proc, whoever their parent is by then.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from mslaunch.host.free_ports import Listener

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
BOUND = 30.0  # seconds for anything that should take less than one; the machine may be busy
COMMAND = [sys.executable, "-m", "mslaunch"]


def program(name: str, *words: object) -> list[str]:
    """The command line of one of our programs."""
    return [sys.executable, "-S", str(PROGRAMS / name), *map(str, words)]


def through_rsh(*hosts: str, agent: str = "rsh") -> list[str]:
    """The options that reach `hosts` (NAME[:SLOTS]) through our rsh."""
    words = ["--rsh-agent", f"{sys.executable} {PROGRAMS / agent}", "--agent-python", sys.executable]
    return [*words, "-H", ",".join(hosts)] if hosts else words


def free_port() -> int:
    """Below those that the kernel gives to outgoing connections and from which mslaunch chooses those of other jobs.

    Nobody holds it until the test does, and the process beside this one (pytest -n 2) takes one for its tests at the
    same time: from other numbers.
    """
    turn = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
    for number in random.sample(range(3000 + turn, 7000, 8), 100):
        try:
            Listener(number).close()
        except OSError:
            continue
        return number
    raise OSError("no port from 3000 to 7000 is free")


def environment(**more: str) -> dict[str, str]:
    """What a user has, and nothing that a launcher looks for."""
    kept = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "TMPDIR") if name in os.environ}
    kept["MSLAUNCH_JOBS"] = os.path.join(tempfile.gettempdir(), f"mslaunch-tests-{os.geteuid()}")  # not the user's
    return {**kept, "PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", **more}


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return sorted(self.out.decode().splitlines())


class Job:
    """One running command."""

    def __init__(self, words: list[str], env: dict[str, str], **how: Any) -> None:
        self.mark = f"TEST_MARK_{os.getpid()}_{time.monotonic_ns()}"
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        self.process = subprocess.Popen([*COMMAND, *words], env={**env, self.mark: "1"}, start_new_session=True, **how)
        self.out = self.err = b""
        self.pid = self.process.pid

    def expect(self, word: bytes, count: int = 1, bound: float = BOUND) -> bytes:
        """Read standard output until `word` was there `count` times; returns all that has been read so far."""
        self.out = self._expect(self.process.stdout, self.out, word, count, bound)
        return self.out

    def expect_error(self, word: bytes, count: int = 1, bound: float = BOUND) -> bytes:
        """The same of standard error."""
        self.err = self._expect(self.process.stderr, self.err, word, count, bound)
        return self.err

    def _expect(self, stream: IO[bytes] | None, text: bytes, word: bytes, count: int, bound: float) -> bytes:
        assert stream
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            deadline = time.monotonic() + bound
            while text.count(word) < count:
                assert selector.select(deadline - time.monotonic()), f"no {word!r} x {count} in {text!r}"
                data = os.read(stream.fileno(), 1 << 16)
                assert data, f"the end came before {word!r} x {count}: {text!r} {self._errors()}"
                text += data
        return text

    def pids(self, word: str = "ready") -> list[int]:
        """The process ids that ranks have said after `word`."""
        lines = [line.split() for line in self.out.decode().splitlines()]
        return [int(line[line.index(word) + 1]) for line in lines if word in line]

    def _errors(self) -> str:
        return self.process.stderr.read().decode() if self.process.stderr else ""

    def send(self, signum: int) -> None:
        """A signal to the launcher alone."""
        self.process.send_signal(signum)

    def end(self, bound: float = BOUND) -> Result:
        """Wait for its end, reading all it says."""
        try:
            out, err = self.process.communicate(timeout=bound)
        except subprocess.TimeoutExpired:
            self.destroy()
            raise
        said = (self.err + (err or b"")).decode("utf-8", "replace")
        return Result(self.process.returncode, self.out + (out or b""), said)

    def left(self) -> dict[int, str]:
        """Process ids and command lines of all that carry our mark and live."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
        return found

    def wait_gone(self, bound: float = BOUND) -> None:
        """Nothing of the job is left, or fails with what is."""
        wait_until(lambda: not self.left(), bound, lambda: f"still there: {self.left()}")

    def destroy(self) -> None:
        """Whatever is left, after a test that failed."""
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            _close(stream)
        self.process.wait(10)


def _close(stream: IO[bytes] | None) -> None:
    try:
        if stream:
            stream.close()
    except OSError:
        pass


def wait_until(true: Any, bound: float = BOUND, tell: Any = lambda: "it did not happen") -> None:
    """Poll what has no event to wait for; fails after `bound` seconds."""
    deadline = time.monotonic() + bound
    while not true():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.01)


def state_of(pid: int) -> str:
    """The kernel's letter for a process: R, S, T (stopped), Z; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    """Its parent's process id; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def memory_of(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    return 0


def alive(pid: int) -> bool:
    """It runs (a zombie does not)."""
    return state_of(pid) not in ("", "Z")


def without_warnings(text: str) -> str:
    """What the real mpirun says, without the line of its parent of ssh that sometimes loses a race with it."""
    return "".join(line for line in text.splitlines(keepends=True) if "Warning: setpgid" not in line)


def on_terminal(words: list[str], mark: bytes, go: Callable[[], object], **env: str) -> tuple[int, bytes]:
    """The exit code of `mslaunch` on a terminal of its own, and what it showed; `go` is called once it shows `mark`."""
    ours, theirs = os.openpty()
    line, surroundings = [sys.executable, "-m", "mslaunch", *words], {**environment(), "TERM": "xterm", **env}
    with subprocess.Popen(line, env=surroundings, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while mark not in shown:
            shown += os.read(ours, 4096)
        go()
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # EIO: the last writer has closed it
            pass
        code = process.wait(BOUND)
    os.close(ours)
    return code, shown
