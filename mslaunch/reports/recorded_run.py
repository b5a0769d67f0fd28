"""The record of a run (run.json) in memory: texts are clean and bounded, numbers finite, indexes inside their lists.

Times are seconds since the launch began; None is what was not known when the record was written.
"""

from __future__ import annotations

from mslaunch.faststd import NamedTuple

#: of an attempt, in their order
PHASES = ("connect", "stage", "start", "run", "end")


class RecordedCause(NamedTuple):
    """Why a run or an attempt did not go well."""

    kind: str
    text: str
    rank: int | None
    host: str


class RecordedHost(NamedTuple):
    """A host that had ranks, or was to have them."""

    name: str
    local: bool
    slots: int | None
    facts: dict[str, str]
    connected: float | None


class RecordedRank(NamedTuple):
    """One rank in one attempt.  `host` is an index into the hosts of the run."""

    rank: int
    name: str
    host: int
    local_rank: int
    app: int
    cpus: str  # "" is not bound
    pid: int | None
    started: float | None
    ended: float | None
    code: int | None
    signal: int | None
    lost: bool
    by_mslaunch: bool  # mslaunch has ended it
    bytes: int | None
    first_output: float | None
    last_output: float | None
    silence: float | None  # its longest
    starts: int


class RecordedAttempt(NamedTuple):
    """One run of all ranks, with the ends of its phases."""

    number: int
    began: float
    connected: float | None
    staged: float | None
    started: float | None
    all_started: float | None
    failed: float | None
    ended: float | None
    cause: RecordedCause | None
    ranks: tuple[RecordedRank, ...]

    def end(self, horizon: float) -> float:
        """When it ended, if that is recorded; else `horizon`, the last time that the record knows, if that is later."""
        if self.ended is not None:
            return max(self.ended, self.began)
        return max(self.began, horizon)

    def phases(self, horizon: float) -> list[tuple[str, float, float]]:
        """(phase, from, to) for each phase that took place, adjacent and rising; the phases are `PHASES`."""
        end = self.end(horizon)
        over = end if self.failed is None else self.failed
        started = self.started if self.all_started is None else self.all_started
        marks = [self.connected, self.staged, started, over, end]
        if started is None:  # the first phase without an end was the last one
            marks[0 if self.connected is None and self.staged is None else 2] = over
        found = []
        at = self.began
        for phase, mark in zip(PHASES, marks):
            to = at if mark is None else min(max(mark, at), end)
            if to > at:
                found.append((phase, at, to))
            at = to
        return found


class RecordedRestart(NamedTuple):
    """Ranks that were started again; `rank` is None if it was all of them."""

    seconds: float
    attempt: int | None
    rank: int | None
    text: str


class RecordedHang(NamedTuple):
    """Ranks that did nothing, as the launcher described them."""

    seconds: float
    text: str


class RecordedOutput(NamedTuple):
    """Bytes that all ranks printed in each interval of so many seconds."""

    interval: float
    bytes: tuple[int, ...]


class RecordedRun(NamedTuple):
    """All that run.json has."""

    version: str
    python: str
    job: str
    command: tuple[str, ...]
    cwd: str
    host: str
    pid: int | None
    began: str
    ended: str
    seconds: float | None
    running: bool  # the launcher has not written how the run ended
    code: int | None
    signal: int | None
    cause: RecordedCause | None
    report: str
    environment: tuple[str, ...]
    exported: tuple[str, ...]
    hosts: tuple[RecordedHost, ...]
    output: RecordedOutput
    attempts: tuple[RecordedAttempt, ...]
    restarts: tuple[RecordedRestart, ...]
    hangs: tuple[RecordedHang, ...]
    horizon: float = 0.0  # `last_time` of it

    @property
    def last(self) -> RecordedAttempt | None:
        """The last attempt that has ranks, which most figures show."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.ranks), None)


def last_time(run: RecordedRun) -> float:
    """The last time that a record knows of."""
    printed = len(run.output.bytes) * run.output.interval if run.running else 0.0
    times: list[float | None] = [run.seconds, printed]
    times += [each.seconds for each in run.restarts] + [each.seconds for each in run.hangs]
    for one in run.attempts:
        times += [one.began, one.connected, one.staged, one.started, one.all_started, one.failed, one.ended]
        for rank in one.ranks:
            times += [rank.started, rank.ended, rank.first_output, rank.last_output]
    return max((time for time in times if time is not None), default=0.0)
