"""Runs commands in turn, each with a time limit, and measures how long they took and what they used.

While commands run, this process adopts orphans (`PR_SET_CHILD_SUBREAPER`): a launcher that hung and was killed leaves
ranks behind, which would disturb the next run.  They are ended by pid.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench_lib import host_cpu

_PR_SET_CHILD_SUBREAPER = 36
_PERSONAL = tuple(f"PYTHON{name}" for name in ("DONTWRITEBYTECODE", "UNBUFFERED", "PATH", "HOME", "WARNINGS"))


class Sample(NamedTuple):
    """One run.  (ru_maxrss is of no use for `peak`: after a spawn it begins with what *we* have.)"""

    seconds: float
    cpu: float  #: seconds of the launcher and all that it started here, ranks as well
    status: int  #: as of waitstatus_to_exitcode; meaningless if it hung
    hung: bool
    peak: int  #: KiB, peak RSS of the launcher's processes, ranks not counted, summed; 0: not watched
    arrived: int  #: bytes that left by a pipe; -1: not counted
    hosts: float = 0.0  #: seconds of CPU of the SSH hosts, with their sshd; 0: not measured

    @property
    def all_cpu(self) -> float:
        return self.cpu + self.hosts

    @property
    def good(self) -> bool:
        return not self.hung and self.status == 0


class Spec(NamedTuple):
    """Commands to be run by turns; `sink` is "null" or "pipe"; `expect` bytes must arrive there (-1: any number)."""

    commands: dict[str, list[str]]
    rounds: int
    bound: float
    sink: str = "null"
    expect: int = -1
    program: tuple[str, ...] = ()  #: what the ranks run; given, the memory of all others is watched
    hosts: Sequence[Sequence[int]] = ()  #: given, the CPU of these hosts is measured; see host_cpu


def clean_environ() -> dict[str, str]:
    """Ours, without what would make Python start or write differently than it does at a user's."""
    return {name: value for name, value in os.environ.items() if name not in _PERSONAL}


def paired(spec: Spec, progress: str = "") -> dict[str, list[Sample]]:
    """One run of each that does not count, then `spec.rounds` of each, in turn: A B, B A, A B …"""
    found: dict[str, list[Sample]] = {name: [] for name in spec.commands}
    with adopting():
        for turn in range(spec.rounds + 1):
            for name, argv in list(spec.commands.items())[:: -1 if turn % 2 else 1]:
                before = host_cpu.seconds(spec.hosts)
                sample = bounded(argv, spec.bound, spec.sink, spec.program)
                sample = sample._replace(hosts=host_cpu.when_idle(spec.hosts) - before)
                if 0 <= spec.expect != sample.arrived and sample.good:
                    sample = sample._replace(status=1)  # it ended well, but bytes are missing
                if turn:
                    found[name].append(sample)
            if progress:
                show_progress(f"{progress}: {turn} of {spec.rounds}")
    show_progress("")
    return found


def show_progress(text: str) -> None:
    """On a terminal only, where the next one replaces it."""
    if os.isatty(2):
        os.write(2, f"\r\x1b[K{text}".encode())


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Orphans of what runs meanwhile become our children, and are ended."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        sweep()
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def bounded(argv: Sequence[str], bound: float, sink: str = "null", program: Sequence[str] = ()) -> Sample:
    """Run `argv` for at most `bound` seconds, then kill it."""
    counter = Counter() if sink == "pipe" else None
    before = _cpu_of_children()
    begin = time.perf_counter()
    pid = start(argv, clean_environ(), counter.entry if counter else -1)
    if counter:
        os.close(counter.entry)
    peaks: dict[int, int] = {}
    if program:
        while time.perf_counter() - begin < bound and not ends(pid, 0.05):
            watch(pid, program, peaks)
    hung = not ends(pid, max(0.0, bound - (time.perf_counter() - begin)))
    seconds = time.perf_counter() - begin
    if hung:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    sweep(counter.pid if counter else 0)
    cpu = _cpu_of_children() - before
    arrived = counter.result() if counter else -1
    code = os.waitstatus_to_exitcode(status)
    return Sample(seconds, cpu, code, hung, sum(peaks.values()), arrived)


def _cpu_of_children() -> float:
    """Of all that were reaped until now, orphans included: mpirun does not wait for its `ssh`."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def watch(pid: int, program: Sequence[str], peaks: dict[int, int]) -> None:
    """Note the peak memory (KiB) of `pid` and all below it but those that run `program`."""
    for member in [pid, *family(pid)]:
        words = _read(member, "cmdline").split("\0")[:-1]
        if words and (len(words), words[1:]) != (len(program), list(program[1:])):
            peaks[member] = max(peaks.get(member, 0), kib(member, "status", "VmHWM:"))


def start(argv: Sequence[str], environ: Mapping[str, str], out: int = -1) -> int:
    """The pid of a new process, leader of a session; all its streams are /dev/null but `out`, if given."""
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    if out >= 0:
        actions[1] = (os.POSIX_SPAWN_DUP2, out, 1)
    return os.posix_spawnp(argv[0], list(argv), environ, file_actions=actions, setsid=True)


def ends(pid: int, bound: float) -> bool:
    """Whether a child ends within `bound` seconds; it is not reaped."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(bound * 1000))
    finally:
        os.close(handle)


class Counter:
    """A `wc -c` that reads a pipe, as the other side of `launcher | something`."""

    def __init__(self) -> None:
        exit_, self.entry = os.pipe()
        self._said, say = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, exit_, 0), (os.POSIX_SPAWN_DUP2, say, 1)]
        self.pid = os.posix_spawnp("wc", ["wc", "-c"], os.environ, file_actions=actions)
        os.close(exit_)
        os.close(say)

    def result(self) -> int:
        text = os.read(self._said, 100)
        os.close(self._said)
        os.waitpid(self.pid, 0)
        return int(text or b"-1")


def sweep(keep: int = 0) -> None:
    """End and reap all our children but `keep`, and what they leave to us."""
    with contextlib.suppress(ChildProcessError):
        for _ in range(1000):
            left = [pid for pid in children(os.getpid()) if pid != keep]
            if not left:
                return
            for pid in left:
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still theirs
            for pid in left:
                os.waitpid(pid, 0)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
        return [int(word) for thread in threads for word in _read(pid, f"task/{thread}/children").split()]
    return []


def family(pid: int) -> list[int]:
    """All below `pid`."""
    found = children(pid)
    for child in found:
        found += [pid for pid in children(child) if pid not in found]  # grows while we look
    return found


def kib(pid: int, file: str, key: str) -> int:
    """A line of /proc/PID/status or smaps_rollup; 0 if there is none."""
    lines = (line.split() for line in _read(pid, file).splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [key]), 0)


def _read(pid: int, name: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def median(samples: Sequence[Sample]) -> float:
    """Of the wall time of those that ended well; nan if none did."""
    times = [sample.seconds for sample in samples if sample.good]
    return statistics.median(times) if times else float("nan")


def ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    """Of the wall time of runs that were neighbours in time and ended well."""
    return [a.seconds / b.seconds for a, b in zip(ours, theirs) if a.good and b.good]


def cpu_ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    """The same of their CPU time, which other work on the machine changes less; none where it was not measured."""
    return [a.all_cpu / b.all_cpu for a, b in zip(ours, theirs) if a.good and b.good and b.all_cpu]


def ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
    """The median of these ratios; nan if there are none."""
    found = ratios(ours, theirs)
    return statistics.median(found) if found else float("nan")
