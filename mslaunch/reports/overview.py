"""The figure of the whole run, on one axis: phases of attempts, ranks that ran, output, restarts and hangs."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.reports import figure
from mslaunch.reports.figure import WIDTH, Figure
from mslaunch.reports.time_axis import Panel
from mslaunch.reports.wording import coordinate, duration, number, plural, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mslaunch.reports.figure import Shape
    from mslaunch.reports.recorded_run import RecordedRank, RecordedRun

    Shapes = Iterator[Shape]

LEFT, RIGHT = 132.0, WIDTH - 12.0
_PHASES_TOP, _PHASES = 22.0, 26.0
_RANKS_TOP, _RANKS = 62.0, 56.0
_OUTPUT_TOP, _OUTPUT = 132.0, 64.0
_EVENTS_TOP, _EVENTS = 204.0, 20.0
_NARROW = 0.5  # pixels: of events that are nearer to each other, one is drawn


def running(ranks: Iterable[RecordedRank], until: float) -> list[tuple[float, int]]:
    """(time, ranks that run from then on), rising; a rank without an end runs until `until`."""
    changes: dict[float, int] = {}
    for rank in ranks:
        if rank.started is not None:
            ended = until if rank.ended is None else max(rank.ended, rank.started)
            changes[rank.started] = changes.get(rank.started, 0) + 1
            changes[ended] = changes.get(ended, 0) - 1
    found = []
    count = 0
    for time, change in sorted(changes.items()):
        count += change
        found.append((time, count))
    return found


def draw(run: RecordedRun) -> Figure:
    """The figure; also of a record that knows of no attempt."""
    axis = Panel("", 0.0, run.horizon or 1.0, LEFT, RIGHT)
    has_events = bool(run.restarts or run.hangs)
    bottom = _EVENTS_TOP + _EVENTS if has_events else _OUTPUT_TOP + _OUTPUT + 4
    shapes = [
        *figure.axis_shapes((axis,), _PHASES_TOP - 6, bottom),
        *_phases(run, axis),
        *_ranks(run, axis),
        *_output(run, axis),
        *(_events(run, axis) if has_events else ()),
    ]
    words = [
        plural(len(run.attempts), "attempt"),
        plural(len(run.restarts), "restart") if run.restarts else "no restarts",
        plural(len(run.hangs), "hang") if run.hangs else "no hangs",
    ]
    description = (
        f"From 0 to {duration(run.horizon)} after the launch began: {', '.join(words)}. "
        "The table of attempts below has the same times."
    )
    return Figure("overview", "The whole run", description, coordinate(bottom + 22), tuple(shapes))


def _name(y: float, text: str, below: str = "") -> Shapes:
    yield figure.label(LEFT - 12, y, text, "row-name", "end")
    if below:
        yield figure.label(LEFT - 12, y + 14, below, "row-note", "end")


def _phases(run: RecordedRun, axis: Panel) -> Shapes:
    yield from _name(_PHASES_TOP + 17, "phase")
    last = -1e9
    drawn: set[tuple[str, int, int]] = set()  # what lies at one place is drawn once
    for attempt in run.attempts:
        left, right = axis.place(attempt.began), axis.place(attempt.end(run.horizon))
        for phase, low, high in attempt.phases(run.horizon):
            x, width = axis.place(low), axis.place(high) - axis.place(low)
            where = (phase, round(2 * x), round(2 * width))
            if where in drawn:
                continue
            drawn.add(where)
            hint = f"attempt {attempt.number}, {phase}: {duration(high - low)}"
            yield figure.rect(x, _PHASES_TOP, width, _PHASES, f"phase-{phase}", hint)
            if width > 9.0 * len(phase) + 8:
                yield figure.label(x + width / 2, _PHASES_TOP + 17, phase, f"on-{phase}", "middle")
        if len(run.attempts) > 1 and left - last > 60:
            text = f"attempt {attempt.number}" if right - left > 60 else str(attempt.number)
            yield figure.label(left, _PHASES_TOP - 9, text, "row-note")
            last = left
        cross = ("failed", round(axis.place(attempt.failed)), 0) if attempt.failed is not None else None
        if attempt.failed is not None and cross and cross not in drawn:
            drawn.add(cross)
            hint = attempt.cause.text if attempt.cause else "the first failure"
            yield figure.cross(axis.place(attempt.failed), _PHASES_TOP + _PHASES / 2, 5, "mark-first", hint)


def _ranks(run: RecordedRun, axis: Panel) -> Shapes:
    points: list[tuple[float, int]] = []
    for attempt in run.attempts:
        points += running(attempt.ranks, attempt.end(run.horizon))
    most = max((count for _, count in points), default=0)
    yield from _name(_RANKS_TOP + 14, "ranks running", f"{number(most)} at most" if most else "none has started")
    yield from _area(points, axis, _RANKS_TOP, _RANKS, most, "area-ranks", "ranks that run")


def _output(run: RecordedRun, axis: Panel) -> Shapes:
    rates = [count / run.output.interval for count in run.output.bytes]
    while len(rates) > 1 and not rates[-1] and (len(rates) - 1) * run.output.interval > run.horizon:
        rates.pop()
    most = max(rates, default=0.0)
    points = [(at * run.output.interval, rate) for at, rate in enumerate(rates)]
    points.append((len(rates) * run.output.interval, 0.0))
    yield from _name(_OUTPUT_TOP + 14, "output", f"{size(most)}/s at most" if most else "nothing was printed")
    yield figure.label(LEFT - 12, _OUTPUT_TOP + 42, f"{size(sum(run.output.bytes))} in all", "row-note", "end")
    yield from _area(points, axis, _OUTPUT_TOP, _OUTPUT, most, "area-output", "bytes that ranks printed in a second")


def _area(
    points: Sequence[tuple[float, float]], axis: Panel, top: float, height: float, most: float, look: str, hint: str
) -> Shapes:
    base = top + height
    yield figure.line(axis.left, base, axis.right, base, "base")
    if most:
        placed = [(axis.place(time), base - height * value / most) for time, value in thinned(points, axis)]
        yield figure.steps(placed, base, placed[-1][0], look, hint)


def thinned(points: Sequence[tuple[float, float]], axis: Panel) -> list[tuple[float, float]]:
    """Of the points at one place, the highest and the last one: what is left looks the same."""
    found: list[tuple[float, float]] = []
    bucket, same = -1, False  # same: the last two points lie at one place
    for time, value in points:
        at = int(axis.place(time) / _NARROW)
        if at == bucket and len(found) > 1 and same:
            found[-2:] = [max(found[-2:], key=lambda point: point[1]), (time, value)]
        else:
            found.append((time, value))
            same = at == bucket
        bucket = at
    return found


def _events(run: RecordedRun, axis: Panel) -> Shapes:
    y = _EVENTS_TOP + _EVENTS / 2
    yield from _name(_EVENTS_TOP + 14, "events")
    drawn: set[tuple[str, int]] = set()
    for kind, time, text in (
        *(("restart", each.seconds, each.text) for each in run.restarts),
        *(("hang", each.seconds, each.text) for each in run.hangs),
    ):
        x = axis.place(time)
        if (kind, round(x)) not in drawn:
            drawn.add((kind, round(x)))
            mark = figure.triangle if kind == "restart" else figure.diamond
            yield mark(x, y, 5.5, f"mark-{kind}", f"{duration(time)}: {text}")
