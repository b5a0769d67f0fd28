"""The figure of one attempt: a row for each rank where there are few, else a row for each host or for some hosts.

The bar of a rank is thin while it has printed nothing yet and after its last output, and thick between them.  A row of
hosts has an area instead, whose height is the part of their ranks that run.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.reports import figure, rank_ends, time_axis
from mslaunch.reports.figure import WIDTH, Figure
from mslaunch.reports.overview import running, thinned
from mslaunch.reports.rank_ends import RankEnd
from mslaunch.reports.wording import coordinate, duration, joined, number, plural, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.reports.figure import Shape
    from mslaunch.reports.overview import Shapes
    from mslaunch.reports.recorded_run import RecordedAttempt, RecordedRun
    from mslaunch.reports.time_axis import Panel

MOST_RANKS = 64  #: with a row of their own
MOST_ROWS = 64  #: of hosts
LEFT, RIGHT = 172.0, WIDTH - 190.0
_TOP = 52.0
_HOST, _RANK = 24.0, 18.0
_ALL = 56.0
_NAME = 20  # characters


class LaneContext(NamedTuple):
    """What all rows of a figure share."""

    run: RecordedRun
    attempt: RecordedAttempt
    axis: list[Panel]
    ends: list[RankEnd]


def draw(run: RecordedRun, attempt: RecordedAttempt) -> Figure:
    """The figure of an attempt that has ranks."""
    end = attempt.end(run.horizon)
    ends = rank_ends.ends_of(attempt)
    starts = [rank.started for rank in attempt.ranks if rank.started is not None]
    begun = max([*starts, attempt.all_started or 0.0]) if starts else None
    failing = attempt.failed
    if failing is None and attempt.ended is not None:
        failing = min((each.rank.ended for each in ends if each.rank.ended is not None), default=None)
    axis = time_axis.panels(attempt.began, begun, failing, end, LEFT, RIGHT)
    context = LaneContext(run, attempt, axis, ends)
    few = len(attempt.ranks) <= MOST_RANKS
    rows, bottom = _rank_rows(context) if few else _host_rows(context)
    shapes = [*figure.axis_shapes(axis, _TOP - 8, bottom), *_marks(context, bottom), *rows]
    kinds = (f"{number(count)} {rank_ends.KINDS[kind]}" for kind, count in rank_ends.counts(ends).items())
    description = (
        f"{plural(len(ends), 'rank')} on {plural(len({each.rank.host for each in ends}), 'host')}: {joined(kinds)}. "
        "The table of ranks below has the same times."
    )
    return Figure(
        f"attempt-{attempt.number}", f"Attempt {attempt.number}", description, coordinate(bottom + 24), tuple(shapes)
    )


def _marks(context: LaneContext, bottom: float) -> Shapes:
    """Lines through all rows: the first failure, and hangs."""
    attempt, run = context.attempt, context.run
    drawn: set[int] = set()
    for hang in run.hangs:
        if attempt.began <= hang.seconds <= attempt.end(run.horizon):
            x = time_axis.place(context.axis, hang.seconds)
            if round(x) in drawn:
                continue
            drawn.add(round(x))
            yield figure.line(x, _TOP - 8, x, bottom, "line-hang", f"hang at {duration(hang.seconds)}: {hang.text}")
            yield figure.diamond(x, _TOP - 14, 4, "mark-hang", f"hang at {duration(hang.seconds)}: {hang.text}")
    if attempt.failed is not None:
        x = time_axis.place(context.axis, attempt.failed)
        yield figure.line(x, _TOP - 8, x, bottom, "line-first")
        yield figure.label(x, _TOP - 34, f"first failure {duration(attempt.failed)}", "name-first", "middle")


# --- few ranks


def _rank_rows(context: LaneContext) -> tuple[list[Shape], float]:
    by_host: dict[int, list[RankEnd]] = {}
    for each in context.ends:
        by_host.setdefault(each.rank.host, []).append(each)
    shapes: list[Shape] = []
    y = _TOP
    for host, ends in by_host.items():
        shapes += _host_head(context, host, y)
        y += _HOST
        for each in ends:
            shapes += _rank_row(context, each, y)
            y += _RANK
        y += 6
    return shapes, y


def _host_head(context: LaneContext, host: int, y: float) -> Shapes:
    known = context.run.hosts[host]
    middle = y + _HOST / 2
    yield figure.label(12, middle + 5, shortened(known.name, _NAME), "host-name", hint=known.name)
    if known.connected is not None and known.connected > context.attempt.began:
        for left, right in time_axis.spans(context.axis, context.attempt.began, known.connected):
            yield figure.rect(
                left, middle - 1, right - left, 3, "phase-connect", f"connected in {duration(known.connected)}"
            )
        x = time_axis.place(context.axis, known.connected)
        yield figure.label(x + 5, middle + 4, f"connected {duration(known.connected)}", "row-note halo")


def _rank_row(context: LaneContext, each: RankEnd, y: float) -> Shapes:
    rank, run, attempt = each.rank, context.run, context.attempt
    middle = y + _RANK / 2
    yield figure.label(26, middle + 4.5, shortened(rank.name, _NAME), f"rank-name name-{each.kind}", hint=rank.name)
    cpus = f"cpus {rank.cpus}" if "-" in rank.cpus or "," in rank.cpus else f"cpu {rank.cpus}" if rank.cpus else ""
    yield figure.label(LEFT - 12, middle + 4.5, shortened(cpus, 12), "row-note", "end", hint=cpus)
    if rank.started is None:
        yield figure.label(RIGHT + 14, middle + 4.5, each.text, "row-note")
        return
    end = attempt.end(run.horizon) if rank.ended is None else rank.ended
    hint = f"{rank.name}: started {duration(rank.started)}, {each.text} {duration(end)}"
    for left, right in time_axis.spans(context.axis, rank.started, end):
        yield figure.rect(left, middle - 1.5, right - left, 3, f"bar-{each.kind} quiet", hint)
    if rank.first_output is not None and rank.last_output is not None:
        for left, right in time_axis.spans(context.axis, rank.first_output, rank.last_output):
            yield figure.rect(left, middle - 5, right - left, 10, f"bar-{each.kind}", hint)
    restarts = {}  # place -> why; what lies at one place is drawn once
    for again in run.restarts:
        if again.rank == rank.rank and again.attempt in (None, attempt.number):
            restarts[round(time_axis.place(context.axis, again.seconds))] = again.text
    for x, text in restarts.items():
        yield figure.triangle(x, middle, 5, "mark-restart", text)
    yield from _rank_end(context, each, time_axis.place(context.axis, end), middle)


def _rank_end(context: LaneContext, each: RankEnd, x: float, middle: float) -> Shapes:
    if each.kind == rank_ends.FIRST:
        yield figure.cross(x, middle, 5, "mark-first", each.text)
    elif each.kind == rank_ends.LOST:
        yield figure.diamond(x, middle, 5, "mark-lost", each.text)
    elif each.kind != rank_ends.RUNNING:
        yield figure.line(x, middle - 6, x, middle + 6, f"stop-{each.kind}", each.text)
    failed = context.attempt.failed
    since = ""
    if each.kind == rank_ends.FIRST:
        since = "first"
    elif failed is not None and each.rank.ended is not None and each.rank.ended >= failed:
        since = f"+{duration(each.rank.ended - failed)}"
    yield figure.label(RIGHT + 14, middle + 4.5, each.text, f"end-name name-{each.kind}")
    yield figure.label(WIDTH - 6, middle + 4.5, since, "row-note", "end")


# --- many ranks


def _host_rows(context: LaneContext) -> tuple[list[Shape], float]:
    by_host: dict[int, list[RankEnd]] = {}
    for each in context.ends:
        by_host.setdefault(each.rank.host, []).append(each)
    hosts = sorted(by_host)
    together = -(-len(hosts) // MOST_ROWS)
    height = 12.0 if len(hosts) / together > 24 else 18.0
    y = _TOP
    shapes: list[Shape] = [
        figure.label(12, y + 14, "all ranks", "host-name"),
        figure.label(LEFT - 12, y + 14, number(len(context.ends)), "row-note", "end"),
        *_area(context, context.ends, y, _ALL - 8, "area-ranks"),
    ]
    y += _ALL
    for at in range(0, len(hosts), together):
        group = hosts[at : at + together]
        ends = [each for host in group for each in by_host[host]]
        shapes += _group_row(context, fold([context.run.hosts[host].name for host in group]), ends, y, height)
        y += height
    return shapes, y + 4


def _group_row(context: LaneContext, name: str, ends: Sequence[RankEnd], y: float, height: float) -> Shapes:
    counts = rank_ends.counts(ends)
    worst = next(iter(counts))
    base = y + height - 2
    hosts = {each.rank.host for each in ends}
    connected = [time for host in hosts if (time := context.run.hosts[host].connected) is not None]
    yield figure.label(12, base, shortened(name, _NAME), f"row-note small name-{worst}", hint=name)
    if connected and max(connected) > context.attempt.began:
        for left, right in time_axis.spans(context.axis, context.attempt.began, max(connected)):
            yield figure.rect(
                left, base - 2, right - left, 2, "phase-connect", f"{name}: connected {duration(max(connected))}"
            )
    summary = joined(f"{number(count)} {SHORT[kind]}" for kind, count in counts.items())
    yield from _area(context, ends, y, height - 2, f"area-{worst}", f"{name}: {summary}")
    first = next((each for each in ends if each.kind == rank_ends.FIRST), None)
    if first is not None and first.rank.ended is not None:
        x = time_axis.place(context.axis, first.rank.ended)
        yield figure.cross(x, base - height / 2 + 1, 4.5, "mark-first", f"{first.rank.name}: {first.text}")
    if first is not None:
        summary = f"{first.rank.name}: {first.text}"
    if first is not None or worst in (rank_ends.FAILED, rank_ends.LOST):
        yield figure.label(RIGHT + 14, base, shortened(summary, 26), f"small name-{worst}", hint=summary)


#: kind of end -> a word or two for a row
SHORT = {
    rank_ends.FIRST: "failed first",
    rank_ends.FAILED: "failed",
    rank_ends.LOST: "lost",
    rank_ends.ENDED: "ended",
    rank_ends.UNSTARTED: "not started",
    rank_ends.RUNNING: "without an end",
    rank_ends.GOOD: "succeeded",
}


def _area(
    context: LaneContext, ends: Sequence[RankEnd], top: float, height: float, look: str, hint: str = ""
) -> Shapes:
    """The part of the ranks that run, over time, in each panel."""
    points = running([each.rank for each in ends], context.attempt.end(context.run.horizon))
    base = top + height
    for panel in context.axis:
        before = next((count for time, count in reversed(points) if time <= panel.low), 0)
        inside = [(time, float(count)) for time, count in points if panel.low < time <= panel.high]
        steps = thinned([(panel.low, float(before)), *inside], panel)
        after = inside[-1][1] if inside else before
        right = panel.right if after else panel.place(steps[-1][0])
        if before or inside:
            placed = [(panel.place(time), base - height * count / len(ends)) for time, count in steps]
            yield figure.steps(placed, base, right, look, hint)
