"""The hosts of one cell: a cluster of its own, made for it and destroyed after it.

Each place has its own process table, /tmp and /dev/shm, all empty at first.  So what is there at the end is what the
job has left, whatever it calls itself: the pid namespace is the mark of its processes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from cluster_lib import ClusterError, network

from chaos_lib import ChaosError

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
HOSTS = ("n01", "n02", "n03", "n04")
#: this Python, by a name that leads to it in a /tmp where nothing else is
PYTHON = os.path.join(os.path.realpath(sys.prefix), "bin", "python3")
PLACES = ("head", *HOSTS)
ADDRESS = {"head": "10.77.0.1", "n01": "10.77.1.1", "n02": "10.77.1.2", "n03": "10.77.1.3", "n04": "10.77.1.4"}


def why_none() -> str:
    """Why no sandbox can be had here; "" if one can."""
    if os.geteuid():
        return "real hosts need root"
    return "" if find_spec("paramiko") else f"{PYTHON} has no paramiko, which the launches need: pip install -e ."


class Process(NamedTuple):
    """One process, by this machine's numbers."""

    pid: int
    parent: int
    state: str
    name: str  # as /proc/PID/comm has it
    words: str  # its command line

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.name}: {self.words[:80]}"


class Sandbox:
    """A cluster of four hosts and the head, and `run`, the directory that all of them see."""

    def __init__(self, folder: Path, visible: tuple[str, ...] = ()) -> None:
        """`visible`: directories below /tmp that hosts find there all the same."""
        self.folder = folder
        self._visible = visible
        self.run = folder / "run"
        self._firsts: dict[str, int] = {}
        self._spaces: dict[str, str] = {}

    # --- up and down

    def up(self) -> None:
        """Raises ChaosError."""
        gate = str(PROGRAMS / "gate.sh")  # the project is there in every /tmp
        more = [word for path in self._visible for word in ("--visible", path)]
        self._verb("up", str(len(HOSTS)), "--private-tmp", "--delay", "0", "--shell", gate, *more)
        self.run.mkdir()
        state = json.loads((self.folder / "state.json").read_text())
        if state["network"] != "switch":
            raise ChaosError("the network of the cells is the switch of scripts/cluster: this kernel has netem")
        self._firsts = {name: process[0] for name, _, process, _ in state["places"]}
        self._spaces = {name: os.readlink(f"/proc/{pid}/ns/pid") for name, pid in self._firsts.items()}

    def down(self) -> None:
        """End everything in it; the files of `run` too."""
        self._verb("down")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _verb(self, verb: str, *words: str) -> None:
        done = subprocess.run(self.command(verb, *words), capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise ChaosError(done.stderr.strip())

    def command(self, verb: str, *words: str) -> list[str]:
        """A command line of scripts/cluster.

        By this Python with its environment, which hosts then find in their /tmp.
        """
        return [PYTHON, str(ROOT / "scripts" / "cluster"), verb, "--dir", str(self.folder), *words]

    def on(self, place: str, *words: str) -> None:
        """Run something there.  Raises ChaosError."""
        self._verb("exec", place, *words)

    # --- what is there

    def first(self, place: str) -> int:
        """Its first process."""
        return self._firsts[place]

    def alive(self, place: str) -> bool:
        """Whether it has power."""
        return os.path.exists(f"/proc/{self._firsts[place]}/root/proc")

    def processes(self, place: str) -> dict[int, Process]:
        """All that live there but for the first."""
        space, first = self._spaces[place], self._firsts[place]
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(name) != first and os.readlink(f"/proc/{name}/ns/pid") == space:
                    process = _read(int(name))
                    if process.state not in "ZX":
                        found[process.pid] = process
            except (OSError, IndexError):  # it has just ended
                continue
        return found

    def root(self, place: str) -> Path:
        """Its root directory."""
        return Path(f"/proc/{self._firsts[place]}/root")

    def files(self, place: str) -> list[str]:
        """What lies in its /tmp and /dev/shm, but for what was there before, and the registry of jobs."""
        known = {self.folder.parts[2], ROOT.parts[2]}
        known |= {Path(os.path.realpath(prefix)).parts[2] for prefix in (sys.prefix, sys.base_prefix, *self._visible)}
        found = [f"/dev/shm/{name}" for name in os.listdir(self.root(place) / "dev/shm")]
        found += [f"/tmp/{name}" for name in os.listdir(self.root(place) / "tmp") if name not in known]
        return [name for name in found if name != f"/tmp/mslaunch-{os.geteuid()}"]

    def detached_log(self) -> Path:
        """The messages of the first detached launcher."""
        return self.root("head") / f"tmp/mslaunch-{os.geteuid()}" / "1" / "launcher.log"

    def connections(self, place: str) -> Iterator[tuple[str, str, str]]:
        """Of TCP over IPv4: local and remote end, as 0A4D0102:0016, and the state, as 02."""
        with open(f"/proc/{self._firsts[place]}/net/tcp", encoding="ascii") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                yield words[1], words[2], words[3]

    # --- what is done to it

    def wire(self, command: str) -> None:
        """A command of the switch: `cut n02`, `delay 2000`."""
        try:
            network.ask_switch(str(self.folder), command)
        except ClusterError as error:
            raise ChaosError(str(error)) from None

    def power_off(self, place: str) -> None:
        """The link goes first, so that no peer sees a connection end; then all processes, at once."""
        self.wire(f"cut {place}")
        os.kill(self._firsts[place], signal.SIGKILL)


def _read(pid: int) -> Process:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        head, _, tail = file.read().rpartition(")")
    fields = tail.split()
    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return Process(pid, int(fields[1]), fields[0], head.partition("(")[2], words)
