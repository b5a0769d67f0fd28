"""One cell, tried: a job is brought to its moment, the fault comes, and what must be true is looked at."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos_lib import ChaosError, checks
from chaos_lib.cells import Cell
from chaos_lib.expectations import EITHER, ENDS, GOES_ON, KILLED, Expected, expected
from chaos_lib.faults import Fault
from chaos_lib.phases import Stage, phase_of
from chaos_lib.sandbox import HOSTS, PLACES, PROGRAMS, PYTHON, ROOT, Sandbox
from chaos_lib.victims import Roles

REACH = 40.0  #: seconds in which a job must come to its moment
PAUSE = 0.005  #: between two looks at what has no event
#: a Python with the real MindSpore, for its scheduler; else a small one takes its place
MINDSPORE = os.environ.get("CHAOS_MINDSPORE_PYTHON", "")
MOST = 5  #: processes that are named
LOGS = "/run/logs"  #: in the head, for the cells with a full disk


class Result(NamedTuple):
    """What a cell has shown; `wrong` is empty if all is right, `error` if it could be tried."""

    cell: str
    wrong: tuple[str, ...] = ()
    error: str = ""
    code: int | None = None
    seconds: float = 0.0  # from the fault to the end of the launcher
    quiet: float = 0.0  # from then on, until nothing was left
    said: str = ""


class Launch:
    """The command of the cell, on the head."""

    def __init__(self, cell: Cell, sandbox: Sandbox, options: tuple[str, ...]) -> None:
        self._sandbox = sandbox
        self._run = sandbox.run
        self.detached = cell.who == "detached"
        words = phase_of(cell, self._run)
        logs = LOGS if cell.what == "disk" else str(self._run / "logs")
        site = "" if MINDSPORE else str(PROGRAMS / "site")
        (self._run / "hosts").write_text("".join(f"{_line(host, words.hosts)}\n" for host in words.hosts))
        program = [
            MINDSPORE or PYTHON,
            *([] if MINDSPORE else ["-S"]),
            str(PROGRAMS / "rank.py"),
            str(self._run),
            words.mode,
        ]
        command = [PYTHON, "-m", "mslaunch", "-n", str(words.count), "--map-by", "seq", "--hostfile", "hosts"]
        command += ["--output-filename", logs, "-x", f"PYTHONPATH={site}", "-x", f"CHAOS_RUN={self._run}"]
        command += ["--events", str(self._run / "events")]
        command += [*words.options, *options, *(["--detach"] if self.detached else []), *program]
        env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
        env.update(clock_of("head", sandbox) if cell.what == "clock" else {})
        self.words = command
        self._env = env
        with open(self._run / "stdout", "wb") as out, open(self._run / "stderr", "wb") as err:
            self.process = subprocess.Popen(
                sandbox.command("exec", "head", *command),
                cwd=self._run, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        self.roles = Roles(sandbox, lambda: self.process.pid, self.detached)

    def ended(self) -> bool:
        """The command, and the launcher of a detached job."""
        return self.process.poll() is not None and not (self.detached and self.roles.launcher())

    def code(self) -> int:
        """Its exit code; that of a detached job as --status tells it."""
        code = self.process.returncode
        if not self.detached or code or not self._sandbox.alive("head"):
            return code
        words = self._sandbox.command("exec", "head", PYTHON, "-m", "mslaunch", "--status", "1")
        done = subprocess.run(words, cwd=self._run, env=self._env, capture_output=True, timeout=30, check=False)
        with open(self._run / "stderr", "ab") as err:
            err.write(done.stderr)
        return done.returncode

    def said(self) -> str:
        """Its messages, and those of a detached launcher."""
        text = (self._run / "stderr").read_text(errors="replace")
        log = self._sandbox.detached_log()
        if self.detached and self._sandbox.alive("head") and log.exists() and "mslaunch:" not in text:
            text += log.read_text(errors="replace")
        return "".join(line for line in text.splitlines(True) if not line[:1].isdigit())  # ranks print into that log

    def destroy(self) -> None:
        """Whatever state it is in."""
        for pid in self.roles.launcher():
            os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


def _line(host: str, hosts: tuple[str, ...]) -> str:
    """With its slots, unless it has several lines: a host without them is asked, and so connected."""
    return f"{host} slots=1" if hosts.count(host) == 1 else host


def clock_of(place: str, sandbox: Sandbox) -> dict[str, str]:
    """The variables of a clock that a cell can change."""
    return {"LD_PRELOAD": str(sandbox.run / "clock.so"), "CHAOS_CLOCK": str(sandbox.run / f"clock.{place}")}


class Trial:
    """One cell."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self.cell = cell
        self.expected: Expected = expected(cell)
        self.sandbox = Sandbox(folder, (str(Path(MINDSPORE).parents[1]),) if MINDSPORE else ())
        self.stage = Stage(cell, self.sandbox)
        self._struck = self._ended = 0.0

    def run(self, keep: bool = False) -> Result:
        """Try it; with `keep` the files remain."""
        name = str(self.cell)
        try:
            self.sandbox.up()
            try:
                return self._tried(name)
            finally:
                if keep:
                    kept = Path(f"{self.sandbox.folder}.kept")
                    shutil.copytree(self.sandbox.run, kept, ignore=_special, dirs_exist_ok=True)
                    print(f"its files: {kept}")
                self.sandbox.down()
        except (ChaosError, OSError, subprocess.SubprocessError) as error:
            return Result(name, error=str(error) or repr(error))

    def _tried(self, name: str) -> Result:
        self._outfit()
        self.stage.prepare()
        launch = Launch(self.cell, self.sandbox, self.expected.options)
        fault = Fault(self.cell, self.sandbox, launch.roles)
        try:
            self._bring(launch, fault)
            fault.strike()
            self._struck = fault.at
            wrong = self._play(launch, fault)
            self._ended = time.monotonic()
            if not launch.ended():
                wrong.append(f"the launcher had not ended {self._ended - self._struck:.0f} s after the fault")
                launch.destroy()
            left = self._wait_quiet(fault)
            quiet = time.monotonic() - self._ended
            code = launch.code()
            said = launch.said()
            wrong += [*left, *checks.of_end(self.expected, code, said)]
            if self.sandbox.alive("head"):  # the code of a detached job's command may be its own
                wrong += checks.of_events(self.sandbox, None if launch.detached else code)
            wrong += checks.of_output(self.cell, self.expected, self.sandbox, self._struck)
            return Result(name, tuple(wrong), "", code, self._ended - self._struck, quiet, said[-1500:])
        finally:
            fault.undo()
            launch.destroy()

    def _outfit(self) -> None:
        """What some cells need in their hosts."""
        run = self.sandbox.run
        if self.cell.what == "clock":
            build = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(run / "clock.so"), str(PROGRAMS / "clock.c"), "-ldl"]
            if subprocess.run(build, capture_output=True, timeout=60, check=False).returncode:
                raise ChaosError("the clock of a cell needs gcc")
            lines = [f"export {name}={value}\n" for name, value in clock_of("n02", self.sandbox).items()]
            (run / "env.n02").write_text("".join(lines))
        if self.cell.what == "disk":
            self.sandbox.on("head", "mkdir", LOGS)
            self.sandbox.on("head", "mount", "-t", "tmpfs", "-o", "size=64k", "none", LOGS)

    def _bring(self, launch: Launch, fault: Fault) -> None:
        """To the moment of the cell."""
        deadline = time.monotonic() + REACH
        while not (self.stage.reached() and fault.find()):
            if launch.process.poll() is not None and not launch.detached:
                raise ChaosError(f"it ended before the moment, with {launch.process.returncode}: {launch.said()}")
            if time.monotonic() > deadline:
                raise ChaosError(f"the moment did not come: {launch.said()}")
            time.sleep(PAUSE)

    # --- after the fault

    def _play(self, launch: Launch, fault: Fault) -> list[str]:
        """To the end of the launcher; what was wrong on the way."""
        fate, cell = self.expected.fate, self.cell
        if cell.when in ("connecting", "addresses", "services"):
            self.stage.let_go()
        if cell.who in ("launcher", "detached") and cell.what == "STOP":
            return self._stopped_launcher(launch, fault)
        if fault.heals_after:
            wait_until(launch.ended, fault.heals_after)
            fault.undo()
        if fate in (GOES_ON, EITHER) and cell.when != "ending":
            wait_until(launch.ended, 0.5 if fate == GOES_ON else 1.0)
            self.stage.finish()
        since = time.monotonic() if fate in (GOES_ON, EITHER) else self._struck
        wait_until(launch.ended, since + self.expected.bound - time.monotonic())
        return []

    def _stopped_launcher(self, launch: Launch, fault: Fault) -> list[str]:
        """Its hosts must be quiet without it; and once it goes on, it must end."""
        wrong = []
        self.stage.let_go()
        slow = {"connecting": "n01", "spawn": "n03"}.get(self.cell.when)  # it has no agent yet whose lease could pass
        hosts = [host for host in HOSTS if host != slow]
        if not wait_until(lambda: not self._left(hosts), self.expected.bound):
            wrong.append(f"the launcher was stopped, and the ranks ran on for {self.expected.bound:g} s")
        fault.undo()
        if self.expected.fate == GOES_ON:
            self.stage.finish()
        wait_until(launch.ended, self.expected.bound)
        return wrong

    def _wait_quiet(self, fault: Fault) -> list[str]:
        """Until nothing of the job is left; what is left after its time."""
        self.stage.let_go()  # a login shell that still waits is none of the job's
        power = self.cell.what == "power"
        places = [place for place in PLACES if not (power and place == fault.place)]
        if wait_until(lambda: not self._left(places) and not self._files(places), self.expected.rest + 0.5):
            return []
        left = [f"left after {self.expected.rest:g} s on {text}" for text in self._left(places)[:MOST]]
        return left + [f"left in files: {text}" for text in self._files(places)]

    def _left(self, places: list[str] | tuple[str, ...]) -> list[str]:
        """Processes; the sshd of a session whose link is dead, or whose client is stopped, belongs to its host."""
        dead = "cut" in self.cell.what or self.cell.what in ("power", "STOP")
        found = []
        for place in places:
            for process in self.sandbox.processes(place).values():
                if process.name.startswith("sshd") and dead:
                    continue
                found.append(f"{place}: {process}")
        return found

    def _files(self, places: list[str]) -> list[str]:
        return [f"{place}: {name}" for place in places for name in self.sandbox.files(place)]


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Look again and again; False if it is not so after so many seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE * 4)
    return True


def _special(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (os.path.isfile(p := os.path.join(folder, name)) or os.path.isdir(p))}


__all__ = ["ENDS", "KILLED", "Result", "Trial"]
