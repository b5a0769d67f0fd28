"""MindSpore under mslaunch and under msrun: time to the first step, and how each kind of failure ends.

The worker reports through a file, because msrun's console is delayed.  A failure has ended when the launcher's process
has; a scheduler or worker that is then still there counts as left behind, and is ended.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench_lib import BenchError, table
from bench_lib.contenders import MSRUN, OURS, Launcher
from bench_lib.table import Row
from bench_lib.timing import adopting, children, clean_environ, ends, family, show_progress, sweep

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "mindspore_steps.py")
WORKERS = 2
START_TARGET, DEATH_TARGET = 0.8, 3.0  #: of msrun's time; seconds
BOUND = 120.0  #: seconds for any run
READY = 90.0  #: seconds until both workers have stepped
HEAD = ("failure", "launcher", "until it ended", "exit code", "left behind", "its last words", "")


class Said(NamedTuple):
    """One line of the program."""

    what: str
    pid: int
    time: float


class Run:
    """One launch of the program."""

    def __init__(self, launcher: Launcher, python: str, options: Sequence[str], steps: int, trouble: str) -> None:
        """`python` is the directory of the one that has MindSpore."""
        self.directory = os.path.abspath(f"run-{time.monotonic_ns()}")
        os.mkdir(self.directory)
        self._says = os.path.join(self.directory, "says")
        environ = {**clean_environ(), "BENCH_SAYS": self._says}
        environ["PATH"] = f"{python}:{environ['PATH']}"
        words = [
            launcher.path,
            f"--worker_num={WORKERS}",
            f"--local_worker_num={WORKERS}",
            "--join=True",
            "--log_dir=log",
        ]
        out = open(os.path.join(self.directory, "out"), "wb")  # noqa: SIM115 - the process keeps it
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            [*words, *options, PROGRAM, str(steps), trouble], cwd=self.directory, env=environ,
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        out.close()

    def said(self, what: str) -> list[Said]:
        if not os.path.exists(self._says):
            return []
        with open(self._says, encoding="ascii") as file:
            lines = [line.split() for line in file if line.endswith("\n")]
        return [Said(words[0], int(words[2]), float(words[3])) for words in lines if words[0] == what]

    def wait(self, what: str, count: int) -> None:
        """Until `count` workers have said it."""
        while len(self.said(what)) < count:
            if self.process.poll() is not None or time.monotonic() > self.begin + READY:
                raise BenchError(f"{' '.join(map(str, self.process.args))}: not {count} × {what!r}\n{self.words()}")
            time.sleep(0.01)

    def end(self) -> float:
        """Seconds of the monotonic clock at which it ended; killed if it does not."""
        if not ends(self.process.pid, BOUND):
            self.process.kill()
        moment = time.monotonic()
        self.process.wait()
        return moment

    def words(self) -> str:
        with open(os.path.join(self.directory, "out"), encoding="utf-8", errors="replace") as file:
            return file.read()


# --- a run without trouble


def start(launchers: Mapping[str, Launcher], rounds: int) -> list[Row]:
    """Seconds to the first step of the slower worker, and to the end; by turns."""
    pair = _pair(launchers)
    found: dict[str, list[tuple[float, float]]] = {launcher.name: [] for launcher in pair}
    with adopting():
        for turn in range(rounds):
            for launcher in pair:
                found[launcher.name].append(_quiet_run(launcher, os.path.dirname(pair[1].path)))
            show_progress(f"{WORKERS} workers: {turn + 1} of {rounds}")
    show_progress("")
    lines = []
    for index, what in enumerate(("to the first step", "to the exit")):
        ours, theirs = ([times[index] for times in found[name]] for name in (OURS, MSRUN))
        factor = statistics.median(a / b for a, b in zip(ours, theirs))
        lines += [_start_row(f"{WORKERS} workers, {what}", OURS, ours), _start_row("", MSRUN, theirs, factor)]
    return lines


def _quiet_run(launcher: Launcher, python: str) -> tuple[float, float]:
    run = Run(launcher, python, [f"--master_port={free_port()}"], 10, "none")
    moment = run.end()
    sweep()
    steps = run.said("stepped")
    if run.process.returncode or len(steps) < WORKERS:
        raise BenchError(f"{launcher.name} ended with {run.process.returncode}:\n{run.words()[-2000:]}")
    return max(one.time for one in steps) - run.begin, moment - run.begin


def _start_row(what: str, name: str, seconds: Sequence[float], factor: float = float("nan")) -> Row:
    median = table.seconds(statistics.median(seconds))
    cells = (what, name, median, table.seconds(min(seconds)), "", f"{len(seconds)} of {len(seconds)}")
    if name == OURS:
        return Row((*cells, "", "", ""))
    reached = factor <= START_TARGET
    return Row(
        (*cells, table.times(factor), f"≤ {START_TARGET:g}", "reached" if reached else "NOT REACHED"), not reached
    )


# --- failures


class Failure(NamedTuple):
    """What goes wrong: options, the program's own trouble, and what is done to the job once it steps."""

    what: str
    options: tuple[str, ...] = ()
    trouble: str = "wait"
    strike: Callable[[Run], float] | None = None  # returns the moment of the failure; None: that is the start


def _kill(number: int) -> Callable[[Run], float]:
    def strike(run: Run) -> float:
        run.wait("stepped", WORKERS)
        moment = time.monotonic()
        os.kill(run.said("stepped")[-1].pid, number)
        return moment

    return strike


def _tell_launcher(number: int) -> Callable[[Run], float]:
    def strike(run: Run) -> float:
        run.wait("stepped", WORKERS)
        moment = time.monotonic()
        os.kill(run.process.pid, number)
        return moment

    return strike


def _kill_scheduler(run: Run) -> float:
    """The one that has MS_ROLE=MS_SCHED."""
    run.wait("stepped", WORKERS)
    for pid in family(run.process.pid):
        with open(f"/proc/{pid}/environ", "rb") as file:
            if b"MS_ROLE=MS_SCHED" in file.read().split(b"\0"):
                moment = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                return moment
    raise BenchError("there is no scheduler")


def _see_it_die(run: Run) -> float:
    """It does so itself, and takes a while: MindSpore has much to close."""
    run.wait("trouble", 1)
    try:
        ends(run.said("trouble")[0].pid, BOUND)
    except ProcessLookupError:  # by now
        pass
    return time.monotonic()


FAILURES = (
    Failure("a worker raises an exception", trouble="exception", strike=_see_it_die),
    Failure("a worker is killed (SIGKILL)", strike=_kill(signal.SIGKILL)),
    Failure("a worker fails before init()", ("--cluster_time_out=30",), "before-init", _see_it_die),
    Failure("the scheduler is killed", strike=_kill_scheduler),
    Failure("the port is taken", ("--cluster_time_out=30",)),
    Failure("Ctrl-C", strike=_tell_launcher(signal.SIGINT)),
    Failure("SIGTERM to the launcher", strike=_tell_launcher(signal.SIGTERM)),
    Failure("more local workers than workers", ("--worker_num=1",)),
)


def failures(launchers: Mapping[str, Launcher]) -> list[Row]:
    """One row for each failure and launcher."""
    pair = _pair(launchers)
    found = []
    with adopting():
        for failure in FAILURES:
            for launcher in pair:
                show_progress(f"{failure.what}: {launcher.name}")
                found.append(_fail(launcher, os.path.dirname(pair[1].path), failure))
    show_progress("")
    return found


def _fail(launcher: Launcher, python: str, failure: Failure) -> Row:
    port = free_port()
    with socket.socket() as taken:
        if failure.what == "the port is taken":
            taken.bind(("", port))
            taken.listen()
        run = Run(launcher, python, [f"--master_port={port}", *failure.options], 2000, failure.trouble)
        moment = failure.strike(run) if failure.strike else run.begin
        ended = run.end()
    took = ended - moment
    left = len([pid for child in children(os.getpid()) for pid in (child, *family(child))])
    sweep()
    return _failure_row(launcher.name, failure, took, run, left)


def _failure_row(name: str, failure: Failure, took: float, run: Run, left: int) -> Row:
    words = next((line.strip() for line in reversed(run.words().splitlines()) if line.strip()), "")
    code = run.process.returncode
    cells = (failure.what if name == OURS else "", name, table.seconds(took), str(code), str(left), words[:90])
    if name != OURS:
        return Row((*cells, ""))
    reached = took < DEATH_TARGET and code != 0 and not left
    return Row((*cells, "reached" if reached else "NOT REACHED"), not reached)


# --- what is there


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _pair(launchers: Mapping[str, Launcher]) -> tuple[Launcher, Launcher]:
    """Ours and theirs."""
    if MSRUN not in launchers:
        raise BenchError("msrun is not here: run scripts/test once, which installs MindSpore")
    return launchers[OURS], launchers[MSRUN]
