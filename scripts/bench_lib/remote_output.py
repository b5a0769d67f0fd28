"""Output of ranks on SSH hosts: how fast one rank's arrives, and what the launcher spends on that of many.

The first is compared with `ssh HOST` that runs the same program.  For the second, 32 ranks on 8 hosts print 5 MB/s
each into log files, whose bytes are counted.  The launcher's CPU is that of its process alone, from /proc/PID/stat once
it has ended and was not reaped yet, without its start: what a launch with a hundredth of the output takes is taken off.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from bench_lib import BenchError, cases, timing
from bench_lib import hosts as ssh_hosts
from bench_lib.contenders import HYDRA, MPIRUN, OURS, ROOT, Launcher
from bench_lib.table import Row, rows
from bench_lib.timing import Spec, clean_environ

GROUP = "remote-output"
SSH_TARGET = 1.25  #: of the time of ssh: 0.8 of its rate
HOSTS, RANKS, RATE, SECONDS = 8, 32, 5_000_000, 10
CPU_TARGET = 0.6  #: of a core
PACED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "paced.py")
PYTHON = "/usr/bin/python3"
_LOGS = {"as they are": [], "with tags": ["--tag-output"]}


def remote_output(launchers: Mapping[str, Launcher], rounds: int, total: int) -> list[Row]:
    """Both.  Raises BenchError without root."""
    if os.geteuid():
        raise BenchError("the SSH hosts need root (scripts/cluster)")
    found = []
    with tempfile.TemporaryDirectory(prefix="mslaunch-bench-") as place:
        with ssh_hosts.up("cluster", place, 1) as directory:
            for sink in ("null", "pipe"):
                found += _beside_ssh(launchers, directory, place, rounds, total, sink)
        found += _many(launchers[OURS], place, max(1, rounds // 2))
    return found


def _beside_ssh(
    launchers: Mapping[str, Launcher], directory: str, place: str, rounds: int, total: int, sink: str
) -> list[Row]:
    host, slots = _slots(directory, place, 1)
    program = [PYTHON, "-c", cases.WRITER, str(total)]
    options = {
        OURS: ["--hostfile", slots, "-n", "1"],
        MPIRUN: ["--allow-run-as-root", "--hostfile", slots, "-n", "1"],
        HYDRA: ["-hosts", host, "-n", "1"],
    }
    asked = {name: [launchers[name].path, *words, *program] for name, words in options.items() if name in launchers}
    asked["ssh"] = ["ssh", host, shlex.join(program)]
    what = f"{total // 1_000_000} MB of one SSH host to {'/dev/null' if sink == 'null' else 'a pipe'}"
    spec = Spec(asked, rounds, 60.0, sink, total if sink == "pipe" else -1)
    timing.show_progress(what)
    results = ssh_hosts.samples(ssh_hosts.say("cluster", directory, "exec", "head", *ssh_hosts.inner(spec, place)))
    return rows(what, OURS, results, {"ssh": SSH_TARGET})


def _slots(directory: str, place: str, each: int) -> tuple[str, str]:
    """The first host, and the path of a hostfile with all of them."""
    names = [line.split()[0] for line in ssh_hosts.say("cluster", directory, "hostfile").splitlines()]
    path = os.path.join(place, "slots")
    with open(path, "w", encoding="ascii") as file:
        file.write("".join(f"{name} slots={each}\n" for name in names))
    return names[0], path


def _many(launcher: Launcher, place: str, rounds: int) -> list[Row]:
    found = []
    with ssh_hosts.up("cluster", place, HOSTS) as directory:
        _, slots = _slots(directory, place, RANKS // HOSTS)
        for kind, options in _LOGS.items():
            what = f"{RANKS} × {RATE // 1_000_000} MB/s of {HOSTS} SSH hosts, logs {kind}"
            timing.show_progress(what)
            shares, rates = [], []
            for _ in range(rounds):
                cpu, seconds = 0.0, 0.0
                for part, sign in ((1.0, 1), (0.01, -1)):
                    size = int(RATE * SECONDS * part)
                    words = [launcher.path, "--hostfile", slots, "--output-filename", os.path.join(place, "logs")]
                    argv = [*words, *options, "-n", str(RANKS), PYTHON, PACED, str(size), str(RATE)]
                    enter = [sys.executable, os.path.join(ROOT, "scripts", "bench"), "_logging", place, str(size)]
                    used = json.loads(ssh_hosts.say("cluster", directory, "exec", "head", *enter, *argv))
                    cpu, seconds = cpu + sign * used[0], seconds + sign * used[1]
                shares.append(cpu / seconds)
                rates.append(RANKS * RATE * SECONDS * 0.99 / 1e6 / seconds)
            found.append(_judged(what, launcher.name, shares, rates))
    timing.show_progress("")
    return found


def _judged(what: str, name: str, shares: Sequence[float], rates: Sequence[float]) -> Row:
    share = statistics.median(shares)
    rate, wanted = statistics.median(rates), RANKS * RATE / 1e6
    cells = (what, name, f"{rate:.0f} of {wanted:.0f} MB/s", "", f"{share * 100:.0f} % of a core")
    reached = share <= CPU_TARGET
    target = f"≤ {CPU_TARGET * 100:.0f} % of a core"
    return Row((*cells, "all bytes", "", target, "reached" if reached else "NOT REACHED"), not reached)


def logging(place: str, size: int, argv: Sequence[str]) -> None:
    """In the head: run `argv`, whose ranks print `size` bytes each; print its CPU time and its seconds.

    Raises BenchError if bytes are missing in the logs.
    """
    begin = time.monotonic()
    with timing.adopting():
        pid = timing.start(argv, clean_environ())
        if not timing.ends(pid, 300):
            os.kill(pid, 9)
        seconds = time.monotonic() - begin
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        status = os.waitpid(pid, 0)[1]
    written = _remove(os.path.join(place, "logs"))
    if status or written < RANKS * size:
        raise BenchError(f"`{' '.join(argv)}` ended with {status}, and {written} bytes are in its logs")
    print(json.dumps([(int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), seconds]))


def _remove(folder: str) -> int:
    """Delete a tree of files; how many bytes were in them."""
    total = 0
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            total += os.path.getsize(os.path.join(path, name))
            os.unlink(os.path.join(path, name))
        for name in folders:
            os.rmdir(os.path.join(path, name))
    return total
