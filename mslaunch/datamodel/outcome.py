"""The outcome as records: how each rank ended, and the first cause of a failure."""

from __future__ import annotations

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.faststd import NamedTuple


class RankStatus(NamedTuple):
    """How one rank ended."""

    rank: int  # counted through all worlds: those of a world that MPI_Comm_spawn made follow on the ranks before
    host: str
    pid: int | None = None
    code: int | None = None  # exit code, or None if a signal ended it or it never ran
    signal: int | None = None
    reason: str = ""  # "" by itself; "ended" by mslaunch; "lost" with its host; "not started"; "running"
    stdout: str | None = None  # path of its log
    stderr: str | None = None
    world: int = 1  # the number of its MPI_COMM_WORLD; 2 and more: MPI_Comm_spawn made it

    @property
    def status(self) -> int:
        """The shell's number: the exit code, or 128 + the signal."""
        return ExitStatus(self.code, self.signal).shell_code


class Failure(NamedTuple):
    """The first cause."""

    what: str
    host: str = ""
    rank: int | None = None
    code: int = 1
    detail: tuple[str, ...] = ()  # its last lines of stderr, or what to do


class Attempt(NamedTuple):
    """A start of all ranks that failed, after which they were started again."""

    number: int  # from 1
    failure: Failure
    seconds: float  # since the launch began
    changed: str = ""  # what is different in the next one: "node04 takes the place of node02"


class Outcome(NamedTuple):
    """How the job ended; the command's exit code is `code`."""

    code: int
    ranks: tuple[RankStatus, ...]
    failure: Failure | None = None
    seconds: float = 0.0
    attempts: tuple[Attempt, ...] = ()  # those before the last
    restarts: tuple[str, ...] = ()  # what was started again by itself, a clause each: "rank 1 on n01 (…)"
    services: tuple[RankStatus, ...] = ()  # `rank` is the id of the service

    @property
    def ok(self) -> bool:
        """True if every rank ended with 0 and nothing else went wrong."""
        return self.code == 0 and self.failure is None
