"""What: puts a fault into a sandbox, and takes back what is only for a time."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable

from chaos_lib import ChaosError
from chaos_lib.cells import CUTS, SIGNALS, Cell
from chaos_lib.sandbox import Sandbox
from chaos_lib.victims import VICTIM, Roles

_PIDS = "/sys/fs/cgroup/pids"
_HEALED = {"cut5": 5.0, "cut20": 20.0, "STOP10": 10.0}
_DELAY, _LOSS, _HOUR = 2000, 20, 3600


class Fault:
    """One fault; `at` is when it came, by the monotonic clock."""

    def __init__(self, cell: Cell, sandbox: Sandbox, roles: Roles) -> None:
        self._cell = cell
        self._sandbox = sandbox
        self._roles = roles
        self._undo: Callable[[], None] | None = None
        self.at = 0.0
        self.pids: list[int] = []

    @property
    def place(self) -> str:
        """The host that has it."""
        return "head" if self._cell.who in ("launcher", "detached", "head") or "local" in self._cell.who else VICTIM

    def find(self) -> bool:
        """Whether the victim is there."""
        if self._cell.who in ("host", "head", "network"):
            return True
        self.pids = self._roles.find(self._cell.who)
        return bool(self.pids)

    def strike(self) -> None:
        """Raises ChaosError, or ProcessLookupError if the victim has ended just now."""
        what = self._cell.what
        self.at = time.monotonic()
        if what in SIGNALS:
            self._signal(getattr(signal, "SIG" + what.removesuffix("10")))
            self._undo = self._continue
        elif what in CUTS:
            self._cut()
        elif what in ("delay", "loss"):
            self._sandbox.wire(f"delay {_DELAY}" if what == "delay" else f"loss {_LOSS}")
        elif what == "clock":
            (self._sandbox.run / f"clock.{self.place}").write_text(str(_HOUR))
        elif what == "disk":
            self._fill_disk()
        else:
            self._limit(what)

    def _signal(self, number: int) -> None:
        """To all at once: none may see another one end."""
        several = len(self.pids) > 1
        for each in (
            ((signal.SIGSTOP,) * several) + (number,) + ((signal.SIGCONT,) * (several and number != signal.SIGSTOP))
        ):
            for pid in self.pids:
                try:
                    os.kill(pid, each)
                except ProcessLookupError:  # sshd has several processes, and some end with the others
                    if not several:
                        raise

    def _continue(self) -> None:
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def _cut(self) -> None:
        what = self._cell.what
        if what == "power":
            self._sandbox.power_off(self.place)
            return
        self._sandbox.wire(f"{what if what in ('cut-to', 'cut-from') else 'cut'} {self.place}")
        self._undo = lambda: self._sandbox.wire(f"heal {self.place}")

    def _fill_disk(self) -> None:
        logs = self._sandbox.root("head") / "logs"
        try:
            with open(logs / "filler", "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
        except OSError:
            pass

    def _limit(self, what: str) -> None:
        for pid in self.pids:
            if what == "descriptors":
                count = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, count))
            elif what == "memory":
                size = int(open(f"/proc/{pid}/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
                resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
            else:
                self._no_processes(pid)

    def _no_processes(self, pid: int) -> None:
        """A control group of its own, which is full."""
        group = f"{_PIDS}/mslaunch-chaos-{os.getpid()}"
        try:
            os.mkdir(group)
            for name, text in (("cgroup.procs", str(pid)), ("pids.max", "1")):
                with open(f"{group}/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        except OSError as error:
            raise ChaosError(f"no control group for processes can be had: {error}") from None
        self._undo = lambda: self._remove(group)

    def _remove(self, group: str) -> None:
        try:
            with open(f"{group}/cgroup.procs", encoding="ascii") as file:
                for pid in file.read().split():
                    with open(f"{_PIDS}/cgroup.procs", "w", encoding="ascii") as root:
                        root.write(pid)
            os.rmdir(group)
        except OSError:  # somebody has ended meanwhile: the next look finds the group empty
            pass

    # --- the end of a fault

    @property
    def heals_after(self) -> float | None:
        """Seconds until it is over by itself."""
        return _HEALED.get(self._cell.what)

    def undo(self) -> None:
        """It is over, as far as that can be."""
        if self._undo:
            self._undo()
            self._undo = None
