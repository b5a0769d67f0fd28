"""16 ranks on four hosts print for long, to logs and to a terminal: every byte arrives, and nothing grows."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
import time
import tty
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos_lib.sandbox import HOSTS, PYTHON, Sandbox
from chaos_lib.trial import wait_until

from soak_lib.counted import LogReader, TerminalReader
from soak_lib.launches import environment

PROGRAM = Path(__file__).resolve().parent / "programs" / "flood.py"
RANKS, EACH = 16, 4
WARM = 0.25  #: of the samples, from the beginning, that do not count for the slope
SLOPE = 256.0  #: KiB a minute by which a process may grow, on runs of a minute and more
#: KiB that any run may add: buffers fill where the reader is slower than the ranks, and a window of SSH for each host
JITTER = 16384 + len(HOSTS) * 2048


def run(sandbox: Sandbox, seconds: float, rate: float) -> dict[str, Any]:
    """`seconds` of `rate` bytes a second for each rank; the record."""
    command = [PYTHON, "-m", "mslaunch", "-H", ",".join(f"{host}:{EACH}" for host in HOSTS), "--tag-output"]
    command += ["--output-filename", str(sandbox.run / "logs"), PYTHON, "-S", str(PROGRAM), str(seconds), str(rate)]
    master, slave = pty.openpty()
    tty.setraw(slave)
    with open(sandbox.run / "stderr", "wb") as err:
        process = subprocess.Popen(
            sandbox.command("exec", "head", *command), cwd=sandbox.run, env=environment(),
            stdin=subprocess.DEVNULL, stdout=slave, stderr=err, start_new_session=True,
        )  # fmt: skip
    os.close(slave)
    terminal = TerminalReader(RANKS)
    reader = threading.Thread(target=_read, args=(master, terminal))
    reader.start()
    watch = _Watch(sandbox)
    logs = _follow(sandbox, process, watch, seconds)
    code = process.wait(60)
    reader.join(60)
    os.close(master)
    said = (sandbox.run / "stderr").read_text(errors="replace")
    wrong = [] if code == 0 else [f"exit code {code}: {said[-500:]}"]
    wrong += _compare(sandbox, logs, terminal)
    growth, grown = watch.growth(seconds)
    total = sum(log.lines.count for log in logs) * 1000
    return {"what": "streams", "seconds": seconds, "rate": rate, "bytes_in_logs": total,
            "bytes_on_terminal": sum(lines.count for lines in terminal.lines) * 1000,
            "memory": growth, "wrong": wrong + grown}  # fmt: skip


def _read(master: int, terminal: TerminalReader) -> None:
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # EIO: nobody has it open any more
            return
        if not data:
            return
        terminal.take(data)


def _follow(sandbox: Sandbox, process: subprocess.Popen[bytes], watch: _Watch, seconds: float) -> list[LogReader]:
    """Read the logs while they grow."""
    paths = [sandbox.run / "logs" / "1" / f"rank.{rank:02d}" / "stdout" for rank in range(RANKS)]
    wait_until(lambda: all(path.exists() for path in paths) or process.poll() is not None, 30)
    logs = [LogReader(path, rank) for rank, path in enumerate(paths) if path.exists()]
    pause = min(5.0, max(0.5, seconds / 60))
    while process.poll() is None:
        watch.sample()
        for log in logs:
            log.read()
        wait_until(lambda: process.poll() is not None, pause)
    for log in logs:
        log.read()
        log.close()
    return logs


def _compare(sandbox: Sandbox, logs: Sequence[LogReader], terminal: TerminalReader) -> list[str]:
    """With what each rank says that it has written."""
    wrong = [*terminal.wrong[:5]]
    if len(logs) != RANKS:
        wrong.append(f"{len(logs)} logs, not {RANKS}")
    for way, found in (("log", [log.lines for log in logs]), ("terminal", terminal.lines)):
        for lines in found:
            wrong += [f"{way}: {text}" for text in lines.wrong]
            count = sandbox.run / f"count.{lines.rank}"
            written = int(count.read_text()) if count.exists() else -1
            if lines.count != written:
                wrong.append(f"{way}: rank {lines.rank} wrote {written} lines, and {lines.count} came")
    return wrong


class _Watch:
    """The memory of the launcher, the agents and their guards."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._samples: dict[str, list[tuple[float, int]]] = {}

    def sample(self) -> None:
        """Now."""
        now = time.monotonic()
        for place in ("head", *HOSTS):
            there = self._sandbox.processes(place)
            ours = {pid: one for pid, one in there.items() if "-m mslaunch" in one.words or "python3 -I" in one.words}
            for pid, one in ours.items():
                role = "launcher" if place == "head" else "agent" if one.parent in ours else "guard"
                size = _resident(pid)
                if size:
                    self._samples.setdefault(f"{role} on {place}", []).append((now, size))

    def growth(self, seconds: float) -> tuple[dict[str, dict[str, float]], list[str]]:
        """For each process its memory (KiB) and its slope (KiB a minute); and which have grown too much."""
        found: dict[str, dict[str, float]] = {}
        wrong = []
        for name, samples in sorted(self._samples.items()):
            warm = samples[int(len(samples) * WARM) :]
            slope = _slope(warm) * 60
            found[name] = {"first_kib": warm[0][1], "last_kib": warm[-1][1], "slope_kib_a_minute": round(slope, 1),
                           "samples": len(warm)}  # fmt: skip
            added = warm[-1][1] - warm[0][1]
            if added > JITTER or (seconds >= 60 and slope > SLOPE):
                wrong.append(f"the {name} grows by {slope:.0f} KiB a minute, and has grown by {added} KiB")
        return found, wrong if found else ["no figures of memory"]


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4
    except OSError:
        return 0


def _slope(samples: Sequence[tuple[float, int]]) -> float:
    """Of the line of least squares."""
    count = len(samples)
    if count < 2:
        return 0.0
    mean_at, mean = sum(at for at, _ in samples) / count, sum(size for _, size in samples) / count
    square = sum((at - mean_at) ** 2 for at, _ in samples)
    return sum((at - mean_at) * (size - mean) for at, size in samples) / square if square else 0.0
