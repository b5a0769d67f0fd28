"""Measures of ranks: how they are distributed, and which ranks are the extreme ones."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.reports import figure
from mslaunch.reports.figure import Figure
from mslaunch.reports.wording import coordinate, duration, plural, size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.reports.figure import Shape
    from mslaunch.reports.recorded_run import RecordedAttempt, RecordedHost, RecordedRank

ROWS = 8  #: ranks that are named
_BINS = 36
_WIDTH, _HEIGHT, _BASE = 340.0, 62.0, 46.0


class RankingRow(NamedTuple):
    """One rank of a ranking."""

    name: str
    host: str
    value: str
    part: str  # of the largest value, in percent


class Ranking(NamedTuple):
    """One measure of all ranks."""

    title: str
    summary: str
    heading: str  # of the values
    histogram: Figure
    rows: tuple[RankingRow, ...]


def rankings(attempt: RecordedAttempt, hosts: Sequence[RecordedHost]) -> list[Ranking]:
    """The measures that are known of at least one rank."""
    found = []
    for id, title, heading, value, text in (
        ("starts", "Slowest to start", "started after", lambda rank: _since(rank.started, attempt.began), duration),
        ("pauses", "Longest silence", "longest silence", lambda rank: rank.silence, duration),
        ("amounts", "Most output", "printed", lambda rank: None if rank.bytes is None else float(rank.bytes), size),
    ):
        known = [(rank, each) for rank in attempt.ranks if (each := value(rank)) is not None]
        if known:
            found.append(_ranking(id, title, heading, known, hosts, text))
    return found


def _since(time: float | None, began: float) -> float | None:
    return None if time is None else max(0.0, time - began)


def _ranking(
    id: str,
    title: str,
    heading: str,
    known: Sequence[tuple[RecordedRank, float]],
    hosts: Sequence[RecordedHost],
    text: Callable[[float], str],
) -> Ranking:
    values = sorted(value for _, value in known)
    median = values[(len(values) - 1) // 2]
    first = sorted(known, key=lambda item: (-item[1], item[0].rank))[:ROWS]
    most = values[-1] or 1.0
    rows = tuple(
        RankingRow(rank.name, hosts[rank.host].name, text(value), coordinate(100 * value / most))
        for rank, value in first
    )
    summary = f"{plural(len(values), 'rank')}: median {text(median)}, from {text(values[0])} to {text(values[-1])}"
    return Ranking(title, summary, heading, _histogram(id, title, values, median, text), rows)


def bins(values: Sequence[float], count: int = _BINS) -> list[int]:
    """How many values lie in each of `count` equal parts from the smallest to the largest; in the first if equal."""
    low, high = min(values), max(values)
    found = [0] * count
    for value in values:
        at = int((value - low) / (high - low) * count) if high > low else 0
        found[min(at, count - 1)] += 1
    return found


def _histogram(id: str, title: str, values: Sequence[float], median: float, text: Callable[[float], str]) -> Figure:
    counts = bins(values)
    width = _WIDTH / len(counts)
    most = max(counts)
    low, high = values[0], values[-1]
    shapes: list[Shape] = [figure.line(0, _BASE, _WIDTH, _BASE, "base")]
    for at, count in enumerate(counts):
        if count:
            height = max(2.0, (_BASE - 6) * (count / most) ** 0.5)  # areas of single ranks can be seen beside thousands
            hint = f"{plural(count, 'rank')}: {text(low + (high - low) * at / len(counts))} or more"
            shapes.append(figure.rect(at * width + 0.5, _BASE - height, width - 1, height, "bin", hint))
    if high > low:
        x = (median - low) / (high - low) * _WIDTH
        shapes.append(figure.line(x, 2, x, _BASE, "median", f"median {text(median)}"))
    shapes += [figure.label(0, _HEIGHT - 2, text(low), "tick-label", "start")]
    if high > low:
        shapes += [figure.label(_WIDTH, _HEIGHT - 2, text(high), "tick-label", "end")]
    description = (
        f"{plural(len(values), 'rank')} from {text(low)} to {text(high)}; heights grow as square roots of counts."
    )
    return Figure(id, title, description, coordinate(_HEIGHT), tuple(shapes), coordinate(_WIDTH))
