"""What an agent reports, as records: the topology of its node, and how a process ended."""

from __future__ import annotations

import os

from mslaunch.faststd import NamedTuple

#: what cpus may share, smallest first; a policy names one of these, a `Topology` has a row for each
LEVELS = ("hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "board")


class Topology(NamedTuple):
    """The cpus of a node that we may use, and what they share.

    `cpus` are the kernel's numbers of the hardware threads in logical order (board by board, socket by socket, …, core
    by core).  `objects` has a row for each of LEVELS: the logical number, from 0, of the object of that level that the
    cpu at this place is in; a row is empty if the machine has no such level (or does not tell).  Objects without a cpu
    that we may use do not count.
    """

    cpus: tuple[int, ...]
    objects: tuple[tuple[int, ...], ...]
    numa: tuple[int, ...] = ()  # the kernel's number of each NUMA node, by logical number; empty: unknown

    def row(self, level: str) -> tuple[int, ...]:
        """The numbers of the objects of this level, one for each cpu; empty if there is no such level."""
        return self.objects[LEVELS.index(level)]

    def cpu_row(self, hwthreads: bool) -> tuple[int, ...]:
        """Which cpu each hardware thread belongs to: its core, or itself with `hwthreads` or if no cores are known."""
        return (not hwthreads and self.row("core")) or tuple(range(len(self.cpus)))


class ExitStatus(NamedTuple):
    """How a process ended; or, with `error`, why it never started or had to be ended."""

    code: int | None = None  # None: a signal ended it, or it never ran
    signal: int | None = None
    error: str = ""
    todo: str = ""  # what the user can do about the error
    asked: bool = False  # the agent was told to end it before it was on its way out

    @property
    def shell_code(self) -> int:
        """As a shell has it in $?: the exit code, or 128 + the signal."""
        return 128 + self.signal if self.signal else self.code or 0


def from_wait_status(status: int) -> ExitStatus:
    """`status` is what waitpid(2) returned for a process that has ended."""
    if os.WIFSIGNALED(status):
        return ExitStatus(signal=os.WTERMSIG(status))
    return ExitStatus(os.WEXITSTATUS(status))
