"""The records that observers get of a job while it runs, made of its events.  Without observers this is not loaded."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.events import ON_HANG, Exited, Hung, LinkEnded, StacksShown, Started
from mslaunch.launcher.job.job_state import ENDING, PREPARING
from mslaunch.launcher.messages.failure_text import hung_text
from mslaunch.launcher.observers import AllStarted, HangFound, JobFailed, OutputCounted, RankEnded, RankStarted
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from mslaunch.datamodel.outcome import Failure
    from mslaunch.launcher.job.job_state import JobState

    class JobWatcher(Protocol):
        """Takes what processes print on its way to the output, and each event after the job has acted on it."""

        def write(self, kind: int, rank: int, data: bytes) -> None:
            """A process has printed `data`; b"": a stream has ended."""

        def observe(self, event: Any) -> None:
            """An event."""

        def end(self) -> None:
            """The last byte has come."""


class JobRecords:
    """Tells observers of the job of one attempt; `emit` is that of `Observers`, `write` that of the output."""

    def __init__(
        self,
        emit: Callable[..., None],
        state: JobState,
        attempt: int,
        write: Callable[[int, int, bytes], None],
        failure: Callable[[], Failure | None],
        heard: Callable[[int, int, bytes], None] | None = None,
    ) -> None:
        """`failure` puts the cause of the job's failure into words; `heard` gets what is printed as well."""
        self._emit = emit
        self._state = state
        self._attempt = attempt
        self._write = write
        self._failure = failure
        self._heard = heard
        self._failed = False
        self._printed = {STDOUT: 0, STDERR: 0}  # bytes
        self._all_started = False

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """Count what a process prints, and write it."""
        self._printed[kind] += len(data)
        if self._heard:
            self._heard(kind, rank, data)
        self._write(kind, rank, data)

    def observe(self, event: Any) -> None:
        """The records that follow from an event, after the job has acted on it."""
        table = self._state.table
        if isinstance(event, Started):
            member = table.ranks.get(event.rank)
            starts = 1 + (member.run_count if member else 0)
            name, host = table.names.name(event.rank), table.hosts[event.node]
            self._emit(RankStarted, name, host, event.pid, event.rank, starts)
            if not self._all_started and table.all_started and self._state.phase != ENDING:
                self._all_started = True
                self._emit(AllStarted, self._attempt)
        elif isinstance(event, Exited) and not event.status.error:
            status = event.status
            self._ended(event.rank, event.node, status.code, status.signal, False, status.asked)
        elif isinstance(event, LinkEnded):
            for member in (*table.on(event.node), *table.services.members.values()):
                if member.node == event.node and member.reason == "lost" and member.pid:
                    self._ended(member.rank, member.node, None, None, True)

        elif isinstance(event, StacksShown) and ON_HANG in event.why:
            self._emit(HangFound, event.text)
        elif isinstance(event, Hung) and not event.stacks:
            self._emit(HangFound, hung_text(event.seconds, event.file, event.missing))

        if not self._failed and self._state.failure and self._state.phase in (PREPARING, ENDING):
            self._failed = True
            self._emit(JobFailed, self._attempt, self._failure())

    def _ended(
        self, rank: int, node: int, code: int | None, signal: int | None, lost: bool, by_us: bool = False
    ) -> None:
        table = self._state.table
        self._emit(RankEnded, table.names.name(rank), table.hosts[node], code, signal, lost, rank, by_us)

    def end(self) -> None:
        """The last byte has come."""
        self._emit(OutputCounted, self._printed[STDOUT], self._printed[STDERR])
