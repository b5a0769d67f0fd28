"""How ranks ended, as kinds that figures give a colour, and who ended first and who followed."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple, signal
from mslaunch.reports.wording import signal_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.reports.recorded_run import RecordedAttempt, RecordedRank

FIRST, FAILED, ENDED, LOST, RUNNING, UNSTARTED, GOOD = "first", "failed", "ended", "lost", "running", "unstarted", "ok"
#: kind -> what it means, worst first
KINDS = {
    FIRST: "failed first",
    FAILED: "failed as well: an exit code or signal of its own",
    LOST: "lost with its host",
    ENDED: "ended by mslaunch",
    UNSTARTED: "not started",
    RUNNING: "no end is recorded",
    GOOD: "succeeded: exit code 0",
}
_SENT = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)


class RankEnd(NamedTuple):
    """The end of one rank."""

    rank: RecordedRank
    kind: str
    text: str  # `exit code 3`


def kind_of(rank: RecordedRank, attempt: RecordedAttempt) -> str:
    """The kind of a rank's end; one of `KINDS`."""
    cause = attempt.cause
    ended = not (rank.ended is None and rank.code is None and rank.signal is None)
    if cause is not None and cause.rank == rank.rank and (ended or rank.lost):
        return FIRST
    if rank.lost:
        return LOST
    if not ended:
        return UNSTARTED if rank.started is None and rank.pid is None else RUNNING
    if not rank.code and not rank.signal:
        return GOOD if rank.code == 0 else RUNNING
    by_signal = rank.signal in _SENT and (cause is not None or attempt.failed is not None)
    return ENDED if rank.by_mslaunch or by_signal else FAILED


def text_of(rank: RecordedRank) -> str:
    """How a rank ended, in two words."""
    if rank.signal:
        return signal_name(rank.signal)
    if rank.code is not None:
        return f"exit code {rank.code}"
    if rank.lost:
        return "lost"
    if rank.ended is not None:
        return "ended"
    return "no end recorded" if rank.started is not None else "not started"


def ends_of(attempt: RecordedAttempt) -> list[RankEnd]:
    """The ends of all ranks of an attempt, in the order of its ranks."""
    return [RankEnd(rank, kind_of(rank, attempt), text_of(rank)) for rank in attempt.ranks]


def in_order(ends: Iterable[RankEnd]) -> list[RankEnd]:
    """The first failure, then the others by the time of their ends; those without one are last."""
    return sorted(
        ends,
        key=lambda end: (
            end.kind != FIRST,
            end.rank.ended if end.rank.ended is not None else float("inf"),
            end.rank.rank,
        ),
    )


def counts(ends: Iterable[RankEnd]) -> dict[str, int]:
    """How many ends there are of each kind, in the order of `KINDS`; kinds that are not there are left out."""
    found = dict.fromkeys(KINDS, 0)
    for end in ends:
        found[end.kind] += 1
    return {kind: count for kind, count in found.items() if count}
