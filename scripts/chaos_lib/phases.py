"""When: how a job is brought to a moment and kept there, without a sleep and without a change of the product.

connecting  the login shell of a host waits at a FIFO; of faults in the launcher, another has its agent already
files       a file takes a while; the directory that takes it is the sign
addresses   the host of the victim has a wrong Ethernet address for rank 0's; a connection in SYN_SENT is the sign
services    the small MindSpore waits at a FIFO before it listens; the real one (--mindspore) takes seconds to load
starting    the first of many ranks says that it runs
running     every rank says so
fence       rank 0 does not join the others
spawn       the login shell of the host that spawned ranks need waits at a FIFO
between     rank 0 has failed, and --restart-delay holds the next attempt
ending      rank 0 has failed, and the others do not obey SIGTERM
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from chaos_lib.cells import Cell
from chaos_lib.sandbox import ADDRESS, Sandbox
from chaos_lib.victims import SERVICE_HOST, VICTIM, agents, services

RANKS = 3  #: on n01, n02, head
MANY = 24  #: on n02, while ranks are started
FIRST = "n01"  #: the host of rank 0
SPAWNED = "n03"
FILE_SIZE, SMALL_FILE = 48 << 20, 256 << 10
_SYN_SENT = "02"
_WRONG = "02:00:00:00:00:99"


class Phase(NamedTuple):
    """What a launch needs for it."""

    mode: str = "run"  # of rank.py
    options: tuple[str, ...] = ()
    hosts: tuple[str, ...] = (
        FIRST,
        VICTIM,
        "head",
    )  # one line each for --map-by seq, so that rank 0 is not on the head
    count: int = RANKS


def phase_of(cell: Cell, run: Path) -> Phase:
    """The launch of a cell."""
    when = cell.when
    scheduler = ("--scheduler", SERVICE_HOST) if "scheduler" in (cell.who,) or when == "services" else ()
    if when == "files":
        return Phase(options=("--preload-files", str(run / "large")))
    if when == "starting":
        return Phase("many", scheduler, (FIRST, *[VICTIM] * MANY, "head"), MANY + 2)
    if when in ("fence", "spawn"):
        hosts = (FIRST, VICTIM, "head", *([SPAWNED] if when == "spawn" else []))
        return Phase(when, ("--mpi", "pmi1", *scheduler), hosts)
    if when == "between":
        return Phase(options=("--restart", "group", "--max-restarts", "1", "--restart-delay", "2"))
    return Phase("ending" if when == "ending" else "run", scheduler)


class Stage:
    """One job on its way to the moment of its cell."""

    def __init__(self, cell: Cell, sandbox: Sandbox) -> None:
        self._cell = cell
        self._sandbox = sandbox
        self._run = sandbox.run
        self._gates: list[str] = []
        self._misled = False  # the victim's host has a wrong address

    def prepare(self) -> None:
        """Before the launch."""
        when, who = self._cell.when, self._cell.who
        if when == "connecting":
            self._gate(VICTIM if who in ("sshd", "host", "network") else FIRST)
        elif when == "spawn":
            self._gate(SPAWNED)
        elif when == "services" and not os.environ.get("CHAOS_MINDSPORE_PYTHON"):
            self._fifo("hold.services")
        elif when == "files":
            with open(self._run / "large", "wb") as file:
                file.truncate(SMALL_FILE if self._cell.what in ("delay", "loss") else FILE_SIZE)
        elif when == "addresses":
            neighbour = ("ip", "neigh", "replace", ADDRESS[FIRST], "lladdr", _WRONG, "dev", "eth0", "nud", "permanent")
            self._sandbox.on(VICTIM, *neighbour)
            self._misled = True

    def _gate(self, host: str) -> None:
        self._fifo(f"hold.{host}")

    def _fifo(self, name: str) -> None:
        os.mkfifo(self._run / name)
        self._gates.append(name)

    def reached(self) -> bool:
        """Whether the moment has come; to be asked again until it has."""
        when = self._cell.when
        if when == "files":
            files = self._sandbox.root(VICTIM) / "tmp"
            return any((files / name / "files").is_dir() for name in os.listdir(files) if name.startswith("mslaunch-"))
        if when == "addresses":
            return any(state == _SYN_SENT for _, _, state in self._sandbox.connections(VICTIM))
        if when == "starting":
            return any(self._there(f"began.{rank}") for rank in range(1, MANY + 1))
        if when == "services" and not self._gates:
            return bool(services(self._sandbox))
        if when == "connecting" and self._cell.who in ("launcher", "detached") and not agents(self._sandbox):
            return False
        if when in ("connecting", "services"):
            return all(self._there(name.replace("hold", "held")) for name in self._gates)
        if not all(self._there(f"ready.{rank}") for rank in range(RANKS)):
            return False
        if when == "fence":
            return all(self._there(f"fence.{rank}") for rank in range(1, RANKS))
        if when == "spawn":
            return self._there(f"held.{SPAWNED}")
        if when in ("between", "ending"):
            (self._run / "fail").touch()
        if when == "ending":
            return self._there("asked.1")
        if when == "between":
            return "all ranks are started again" in self._said() and not self._ranks()
        return True

    def _said(self) -> str:
        """By the launcher, also a detached one."""
        log = self._sandbox.detached_log()
        return (self._run / "stderr").read_text() + (log.read_text(errors="replace") if log.exists() else "")

    def _there(self, name: str) -> bool:
        return (self._run / name).exists()

    def _ranks(self) -> bool:
        return any("rank.py" in one.words for one in self._sandbox.processes(VICTIM).values())

    def let_go(self) -> None:
        """The moment may pass; only its own hold is undone, the ranks still run on."""
        for name in self._gates:
            (self._run / name).rename(self._run / f"past.{name}")
            fd = _open_gate(self._run / f"past.{name}")
            if fd >= 0:
                os.close(fd)
        self._gates = []
        if self._misled and self._cell.what != "power":
            self._misled = False
            self._sandbox.on(VICTIM, "ip", "neigh", "del", ADDRESS[FIRST], "dev", "eth0")

    def finish(self) -> None:
        """All ranks end with 0."""
        self.let_go()
        (self._run / "go").touch()


def _open_gate(path: Path) -> int:
    """Open and close a FIFO for writing: who waits there goes on; -1 if nobody does any more."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return -1
