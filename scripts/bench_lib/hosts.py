"""One rank on each of 1, 8, 32 hosts over SSH; the hosts are those of `scripts/cluster`.

The measurement runs in the cluster's head, because entering it costs as much as a launch.  PATH is the system's there:
a host's `python3` must not be a shim of the user who benchmarks.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from bench_lib import BenchError, table
from bench_lib.contenders import BASE, HYDRA, MPIRUN, OURS, ROOT, Launcher
from bench_lib.table import Row
from bench_lib.timing import Sample, Spec, clean_environ, paired, show_progress

TARGETS = {32: 0.4}
_QUICKER = "    KexAlgorithms ^curve25519-sha256\n"  #: a line of the cluster's, not one that users have


def hosts(launchers: Mapping[str, Launcher], rounds: int, both: bool) -> list[Row]:
    """With ssh's own key exchange and, if `both`, also with the cheaper one.  Raises BenchError without root."""
    if os.geteuid():
        raise BenchError("the SSH hosts need root (scripts/cluster)")
    found = []
    for count in (1, 8, 32):
        with tempfile.TemporaryDirectory(prefix="mslaunch-bench-") as place, up("cluster", place, count) as directory:
            if both:
                results = _measure(launchers, directory, place, count, rounds)
                found += table.rows(f"{count} SSH hosts, curve25519 first", OURS, results)
            _forget_quicker(directory)
            results = _measure(launchers, directory, place, count, rounds)
            found += table.rows(f"{count} SSH hosts", OURS, results, {MPIRUN: TARGETS.get(count, 0.0)})
    return found


@contextlib.contextmanager
def up(script: str, place: str, count: int) -> Iterator[str]:
    """Hosts of scripts/cluster, or another script that takes the same words; their directory."""
    directory = os.path.join(place, "cluster")
    try:
        say(script, directory, "up", str(count))
        yield directory
    finally:
        say(script, directory, "down")


def say(script: str, directory: str, verb: str, *words: str) -> str:
    """What the script prints.  Raises BenchError with what it says if it fails."""
    command = [sys.executable, os.path.join(ROOT, "scripts", script), verb, "--dir", directory, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=clean_environ())
    if done.returncode:
        raise BenchError(f"`scripts/{script} {verb}` failed: {done.stderr.strip()}")
    return done.stdout


def _forget_quicker(directory: str) -> None:
    path = os.path.join(directory, "home", "head", ".ssh", "config")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if _QUICKER not in text:
        raise BenchError(f"no line {_QUICKER.strip()!r} in the cluster's ssh config: update scripts/bench_lib/hosts.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(_QUICKER, ""))


def _measure(
    launchers: Mapping[str, Launcher], directory: str, place: str, count: int, rounds: int
) -> dict[str, list[Sample]]:
    names = [line.split()[0] for line in say("cluster", directory, "hostfile").splitlines()]
    for file_name, text in (("slots", " slots=1\n"), ("colons", ":1\n")):
        with open(os.path.join(place, file_name), "w", encoding="ascii") as file:
            file.write("".join(name + text for name in names))
    slots, colons, n = os.path.join(place, "slots"), os.path.join(place, "colons"), str(count)
    options = {
        OURS: ["--hostfile", slots, "-n", n],
        BASE: ["--hostfile", slots, "-n", n],
        MPIRUN: ["--allow-run-as-root", "--hostfile", slots, "-n", n],
        HYDRA: ["-f", colons, "-n", n],
    }
    asked = {name: [launchers[name].path, *words, "true"] for name, words in options.items() if name in launchers}
    show_progress(f"{count} SSH hosts")
    return samples(say("cluster", directory, "exec", "head", *inner(asked, rounds, place)))


def inner(asked: dict[str, list[str]], rounds: int, place: str) -> list[str]:
    """The command that measures these, on a host that sees the directory `place`; see `samples`."""
    spec = os.path.join(place, "spec")
    with open(spec, "w", encoding="utf-8") as file:
        json.dump(Spec(asked, rounds, 60.0), file)
    return [sys.executable, os.path.join(ROOT, "scripts", "bench"), "_inside", spec]


def samples(said: str) -> dict[str, list[Sample]]:
    """What that command has printed."""
    return {name: [Sample(*one) for one in found] for name, found in json.loads(said).items()}


def inside(path: str) -> None:
    """In the head: measure as the file says, and print what was found."""
    with open(path, encoding="utf-8") as file:
        spec = Spec(*json.load(file))
    print(json.dumps(paired(spec)))
