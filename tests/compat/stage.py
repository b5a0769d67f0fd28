"""Process 1 of the PID namespace of one recorded case, on a host called head0.  Run by `recorded.play`.

It makes the files of the case, starts the launcher, does what the case's actions say at their times, and records the
result.  As process 1 it inherits every orphan of the case, so it must reap them; a process that is alive when the
launcher has ended was left behind.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import selectors
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

HOSTS = "127.0.0.1 localhost head0 head0.cluster.local\n::1 ip6-localhost\n" + "".join(
    [f"127.1.0.{at} {name} {name}.cluster.local\n" for at, name in enumerate(("aa", "bb", "cc", "dd", "ee", "ff"), 1)]
    + [f"127.2.0.{at} node0{at}\n" for at in range(1, 5)]
)
TICK = 0.02  # seconds between two looks at what gives no event: a file of the case, an orphan
ADOPTED = 0.5  # seconds that a leftover has to end, unless the case says otherwise


def main() -> None:
    top = Path(sys.argv[1])
    job = json.loads((top / "job").read_text())
    (top / "hosts").write_text(HOSTS)
    subprocess.run(["mount", "--bind", str(top / "hosts"), "/etc/hosts"], check=True)
    Path("/proc/sys/kernel/hostname").write_text("head0")
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(1000 + os.getppid() % 1000))
    os.sched_setaffinity(0, set(job["cpus"]) & os.sched_getaffinity(0))
    result = Play(job).run()
    (top / "result").write_text(json.dumps(result))


class Play:
    """One launcher, watched."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.case = job["case"]
        self.work = job["work"]
        self.job = job
        self.printed = {1: bytearray(), 2: bytearray()}
        self.input = bytearray()
        self.timed_out = False

    def run(self) -> dict[str, Any]:
        self.make_files()
        self.start()
        deadline = time.monotonic() + self.case.get("timeout", 30)
        todo = self.actions()
        while self.open or self.process.poll() is None:
            if not self.timed_out and time.monotonic() > deadline:
                self.timed_out = True
                self.kill_all()
            if self.process.poll() is not None and time.monotonic() > self.ended() + 1.0:
                break  # something still holds its streams
            next(todo, None)
            self.listen()
            reap(self.process.pid)
        left = self.leftovers()
        self.kill_all()
        return {
            "code": self.process.returncode,
            "timed_out": self.timed_out,
            "stdout": base64.b64encode(bytes(self.printed[1])).decode(),
            "stderr": base64.b64encode(bytes(self.printed[2])).decode(),
            "files": self.files_made(),
            "rsh": sorted(self.rsh_log().splitlines()),
            "left": left,
        }

    # --- before

    def filled(self, text: str) -> str:
        return text.replace("@W@", self.work).replace("@PY@", sys.executable)

    def make_files(self) -> None:
        for name, text in self.case.get("files", {}).items():
            path = Path(self.work, name)
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.filled(text))
            path.chmod(0o755 if text.startswith("#!") else 0o644)

    def environ(self) -> dict[str, str]:
        home = f"{self.work}/home"
        names = {"HOME": home, "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh", "TERM": "dumb", "LANG": "C.UTF-8"}
        names["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        names.update(RSH_HOME=home, RSH_LOG=f"{home}/.rsh")
        for name, value in self.case.get("env", {}).items():
            if value is None:
                names.pop(name, None)
            else:
                names[name] = self.filled(value)
        return names

    def start(self) -> None:
        case = self.case
        words = [*self.job["launcher"], *map(self.filled, case["argv"])]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if case.get("tty"):
            self.master, slave = pty.openpty()
            streams = dict.fromkeys(streams, slave)
        self.process = subprocess.Popen(
            words,
            cwd=Path(self.work, case.get("cwd", "")),
            env=self.environ(),
            preexec_fn=self.prepare,  # noqa: PLW1509 - there are no threads here
            **streams,
        )
        if case.get("tty"):
            os.close(slave)
            self.open = {self.master: 1}
        else:
            self.open = {self.process.stdout.fileno(): 1, self.process.stderr.fileno(): 2}  # type: ignore[union-attr]
            self.give_input()

    def prepare(self) -> None:
        os.setsid()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if self.case.get("tty"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if self.case.get("stdin_mode") == "closed":
            os.close(0)

    def give_input(self) -> None:
        given = self.case.get("stdin")
        if isinstance(given, dict):
            given = given["repeat"] * given["times"]
        self.input += (given or "").encode()
        os.set_blocking(self.process.stdin.fileno(), False)  # type: ignore[union-attr]

    # --- meanwhile

    def listen(self) -> None:
        """Read what there is and write what the launcher takes, for a tick at most."""
        with selectors.DefaultSelector() as selector:
            for fd in self.open:
                selector.register(fd, selectors.EVENT_READ)
            stdin = self.process.stdin
            if stdin and not stdin.closed:
                if self.input:
                    selector.register(stdin, selectors.EVENT_WRITE)
                elif self.case.get("stdin_mode") != "hold":
                    stdin.close()
            for key, _ in selector.select(TICK):
                if key.fileobj is stdin:
                    self.write()
                else:
                    self.read(key.fd)

    def read(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:  # a terminal whose other end is closed
            data = b""
        stream = self.open[fd]
        if not data:
            del self.open[fd]
            return
        self.printed[stream] += data
        wanted = self.case.get("stdout_close_after_lines")
        if wanted and stream == 1 and self.printed[1].count(b"\n") >= wanted:
            lines = bytes(self.printed[1]).splitlines(keepends=True)
            self.printed[1] = bytearray(b"".join(lines[:wanted]))
            del self.open[fd]
            self.process.stdout.close()  # type: ignore[union-attr]

    def write(self) -> None:
        try:
            del self.input[: os.write(self.process.stdin.fileno(), bytes(self.input[: 1 << 16]))]  # type: ignore[union-attr]
        except BlockingIOError:
            pass
        except OSError:
            self.input.clear()

    def actions(self) -> Any:
        """A generator: each step waits for what an action waits for, or does it."""
        for action in self.case.get("actions", []):
            ((kind, what),) = [(key, value) for key, value in action.items() if key not in ("to", "timeout")]
            until = time.monotonic() + (what if kind == "sleep" else 15)
            if kind == "wait_files":
                while time.monotonic() < until and not all(Path(self.work, name).exists() for name in what):
                    yield
            while kind == "sleep" and time.monotonic() < until:
                yield
            if kind == "signal" and self.process.poll() is None:
                send = os.killpg if action.get("to") == "group" else os.kill
                send(self.process.pid, getattr(signal, "SIG" + what))
            elif kind == "tty_write":
                os.write(self.master, what.encode())
            elif kind == "stdin_write":
                self.input += what.encode()

    # --- afterwards

    def ended(self) -> float:
        """When the launcher's end was first seen."""
        self.end = getattr(self, "end", time.monotonic())
        return self.end

    def leftovers(self) -> list[str]:
        until = time.monotonic() + self.case.get("leftover_grace", ADOPTED)
        while living() and time.monotonic() < until:
            reap(self.process.pid)
            time.sleep(TICK)
        return sorted(living().values())

    def kill_all(self) -> None:
        for pid in living():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def files_made(self) -> dict[str, Any]:
        """Path -> content in base64 (None: an empty directory), without the home and the files that were there."""
        given = set(self.case.get("files", {})) - set(self.case.get("watch", []))
        found: dict[str, Any] = {}
        for folder, folders, names in os.walk(self.work):
            inside = os.path.relpath(folder, self.work)
            if inside == ".":
                folders.remove("home")
            elif not folders and not names and inside + "/" not in given:
                found[inside + "/"] = None
            for name in names:
                path = os.path.normpath(os.path.join(inside, name))
                if path not in given and name != "run.json":  # docs/differences.md
                    found[path] = base64.b64encode(Path(folder, name).read_bytes()).decode()
        return found

    def rsh_log(self) -> str:
        path = Path(self.work, "home", ".rsh")
        return path.read_text() if path.exists() else ""


def living() -> dict[int, str]:
    """The processes of this namespace but for us: process id -> command line."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            if int(name) != os.getpid() and state not in ("Z", "X"):
                found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (OSError, ValueError):
            continue
    return found


def reap(child: int) -> None:
    """Orphans that ended; not our own child, whose status is Popen's to take."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == child:
            return
        os.waitpid(found.si_pid, os.WNOHANG)


if __name__ == "__main__":
    main()
