"""One rank on each of many SSH hosts, beside other launchers and `ssh` itself; hosts are those of `scripts/cluster`.

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
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench_lib import BenchError, host_cpu, hosts_table
from bench_lib.contenders import BASE, HYDRA, MPIRUN, OURS, ROOT, SSH, SSHS, Launcher
from bench_lib.hosts_table import Targets
from bench_lib.table import Row
from bench_lib.timing import Sample, Spec, clean_environ, paired, show_progress

_QUICKER = "    KexAlgorithms ^curve25519-sha256\n"  #: a line of the cluster's, not one that users have
_ALL_AT_ONCE = """\
started=
for host in "$@"; do ssh "$host" python3 -c pass & started="$started $!"; done
failed=0
for one in $started; do wait "$one" || failed=1; done
exit $failed
"""
_ROUND_TRIP = """\
import socket, sys, time
took = []
for _ in range(5):  # a connection takes one round trip; the first one also asks for the Ethernet address
    begin = time.perf_counter()
    socket.create_connection((sys.argv[1], 22)).close()
    took.append(time.perf_counter() - begin)
print(min(took) * 1000)
"""


class Case(NamedTuple):
    """So many hosts, and beside what mslaunch is measured there."""

    count: int
    others: tuple[str, ...]
    targets: Targets = Targets()
    curve: Targets | None = Targets()  # with curve25519 first; None: not measured so
    default: bool = True  # measured with ssh's own key exchange
    delay: float = 0.0  # ms, one way
    rounds: int = 0  # at least
    bound: float = 60.0  # seconds for one run


_OF_A_HOST = 0.050
_WITH_CURVE = Targets({HYDRA: 1.5, MPIRUN: 0.6}, of_a_host=_OF_A_HOST)
FEW = (
    Case(1, (MPIRUN, HYDRA, SSH), Targets({SSH: 1.0})),
    Case(8, (MPIRUN, HYDRA, SSHS)),
    Case(32, (MPIRUN, HYDRA, SSHS), Targets({MPIRUN: 0.4, HYDRA: 0.6}, of_a_host=_OF_A_HOST), _WITH_CURVE),
)
MANY = (
    Case(8, (SSH,), Targets({SSH: 1.15}), None, delay=30.0),
    Case(64, (MPIRUN, HYDRA, SSHS), Targets({MPIRUN: 0.6, HYDRA: 0.6}, of_a_host=_OF_A_HOST), _WITH_CURVE),
    Case(200, (SSHS,), curve=Targets(cpu={SSHS: 2.5}, all_end=True), default=False, rounds=5, bound=120.0),
)


def hosts(launchers: Mapping[str, Launcher], cases: Sequence[Case], rounds: int, both: bool) -> list[Row]:
    """With ssh's own key exchange and, if `both`, also with the cheaper one.  Raises BenchError without root."""
    if os.geteuid():
        raise BenchError("the SSH hosts need root (scripts/cluster)")
    found = []
    for case in cases:
        delay = ["--delay", f"{case.delay:g}"] * bool(case.delay)
        with (
            tempfile.TemporaryDirectory(prefix="mslaunch-bench-") as place,
            up("cluster", place, case.count, *delay) as directory,
        ):
            title = f"{case.count} SSH host{'s' * (case.count > 1)}"
            if case.delay:
                title += f", round trip {_round_trip(directory):.0f} ms"
            if case.curve is not None and (both or not case.default):
                results = _measure(launchers, case, directory, place, rounds)
                found += hosts_table.rows(f"{title}, curve25519 first", case.count, results, case.curve)
            if case.default:
                _forget_quicker(directory)
                results = _measure(launchers, case, directory, place, rounds)
                found += hosts_table.rows(title, case.count, results, case.targets)
    return found


@contextlib.contextmanager
def up(script: str, place: str, count: int, *options: str) -> Iterator[str]:
    """Hosts of scripts/cluster, or another script that takes the same words; their directory."""
    directory = os.path.join(place, "cluster")
    try:
        say(script, directory, "up", str(count), *options)
        yield directory
    finally:
        say(script, directory, "down")


def say(script: str, directory: str, verb: str, *words: str, bound: float = 600, inherited: Sequence[int] = ()) -> str:
    """What the script prints.  Raises BenchError with what it says if it fails."""
    command = [sys.executable, os.path.join(ROOT, "scripts", script), verb, "--dir", directory, *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=bound,
        check=False,
        env=clean_environ(),
        pass_fds=inherited,
    )
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


def _round_trip(directory: str) -> float:
    """Milliseconds between the head and a host, as they are."""
    return float(say("cluster", directory, "exec", "head", sys.executable, "-c", _ROUND_TRIP, "n01"))


def _measure(
    launchers: Mapping[str, Launcher], case: Case, directory: str, place: str, rounds: int
) -> dict[str, list[Sample]]:
    names = [line.split()[0] for line in say("cluster", directory, "hostfile").splitlines()]
    asked, rounds = commands(launchers, case, names, place), max(rounds, case.rounds)
    show_progress(f"{case.count} SSH hosts")
    with host_cpu.opened(directory) as files:
        command = inner(Spec(asked, rounds, case.bound, hosts=files), place)
        bound = 600 + (rounds + 1) * len(asked) * (case.bound + host_cpu.PATIENCE)
        inherited = [fd for pair in files for fd in pair]
        return samples(say("cluster", directory, "exec", "head", *command, bound=bound, inherited=inherited))


def commands(launchers: Mapping[str, Launcher], case: Case, names: Sequence[str], place: str) -> dict[str, list[str]]:
    """Of mslaunch, and of the others that are installed; with another checkout of ours, of no others."""
    for file_name, text in (("slots", " slots=1\n"), ("colons", ":1\n")):
        with open(os.path.join(place, file_name), "w", encoding="ascii") as file:
            file.write("".join(name + text for name in names))
    slots, colons, n = os.path.join(place, "slots"), os.path.join(place, "colons"), str(case.count)
    options = {
        OURS: ["--hostfile", slots, "-n", n],
        BASE: ["--hostfile", slots, "-n", n],
        MPIRUN: ["--allow-run-as-root", "--hostfile", slots, "-n", n],
        HYDRA: ["-f", colons, "-n", n],
    }
    wanted = [name for name in (OURS, BASE, *case.others) if name in launchers]
    asked = {name: [launchers[name].path, *options[name], "true"] for name in wanted}
    if BASE not in launchers:
        itself = {SSH: ["ssh", names[0], "true"], SSHS: ["sh", "-c", _ALL_AT_ONCE, "sh", *names]}
        asked.update({name: words for name, words in itself.items() if name in case.others})
    return asked


def slots_file(directory: str, place: str, text: str) -> str:
    """A file in `place` of the cluster's hosts, each with `text` behind it."""
    path = os.path.join(place, f"hosts{text.strip()}")
    names = [line.split()[0] for line in say("cluster", directory, "hostfile").splitlines()]
    with open(path, "w", encoding="ascii") as file:
        file.write("".join(f"{name}{text}\n" for name in names))
    return path


def inner(spec: Spec, place: str) -> list[str]:
    """The command that measures `spec`, on a host that sees the directory `place`; see `samples`."""
    path = os.path.join(place, "spec")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file)
    return [sys.executable, os.path.join(ROOT, "scripts", "bench"), "_inside", path]


def samples(said: str) -> dict[str, list[Sample]]:
    """What that command has printed."""
    return {name: [Sample(*one) for one in found] for name, found in json.loads(said).items()}


def inside(path: str) -> None:
    """In the head: measure as the file says, and print what was found."""
    with open(path, encoding="utf-8") as file:
        spec = Spec(*json.load(file))
    host_cpu.keep(spec.hosts)
    print(json.dumps(paired(spec)))
