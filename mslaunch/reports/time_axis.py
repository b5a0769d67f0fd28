"""Axes of time: ticks at round times, and one axis of several panels, each with its own scale.

A launch lasts seconds, its run hours, and its end seconds again.  So the axis of an attempt has up to three panels
beside each other: its start and its end are stretched, and between them is the run.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: seconds between ticks: from 1 ms to years
STEPS: tuple[float, ...] = (
    *(factor * 10.0**power for power in (-3, -2, -1) for factor in (1, 2, 5)),
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0,
    3600.0, 7200.0, 10800.0, 21600.0, 43200.0,
    *(86400.0 * factor * 10**power for power in range(6) for factor in (1, 2, 5)),
)  # fmt: skip
GAP = 14.0  #: between panels
_SHORT = 0.2  #: a phase that takes less than this part of the attempt gets a panel of its own
_STRETCHED = 0.3  # of the width, for a panel of its own


class Panel(NamedTuple):
    """A part of an axis: the times `low` to `high` lie between `left` and `right`."""

    name: str
    low: float
    high: float
    left: float
    right: float

    def place(self, time: float) -> float:
        """Where a time lies; what is outside lies at the edge."""
        span = self.high - self.low
        part = (min(max(time, self.low), self.high) - self.low) / span if span > 0 else 0.0
        return self.left + part * (self.right - self.left)


def step(low: float, high: float, most: int) -> float:
    """The smallest distance of ticks at round times of which at most `most` fit."""
    return next((each for each in STEPS if (high - low) / each <= most), STEPS[-1])


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round times from `low` to `high`, rising, about `most` at the most."""
    distance = step(low, high, most)
    first = -int(-low // distance) if low > 0 else 0
    found = []
    number = first
    while number * distance <= high + distance * 1e-9:
        found.append(number * distance)
        number += 1
    return found


def panels(
    began: float, started: float | None, failing: float | None, ended: float, left: float, right: float
) -> list[Panel]:
    """One to three panels from `began` to `ended`.

    `started` is when the start was over, `failing` when the end began; None if that is not known.
    """
    total = ended - began
    spare = 1.2  # a little more than the phase itself, so that its end can be seen
    start = (started - began) * spare if started is not None else 0.0
    end = (ended - failing) * spare if failing is not None else 0.0
    cuts = [began]
    if 0 < start < _SHORT * total:
        cuts.append(began + start)
    has_start = len(cuts) == 2
    has_end = 0 < end < _SHORT * total
    if has_end:
        cuts.append(ended - end)
    cuts.append(ended)
    names = ["start"] * has_start + ["run"] + ["end"] * has_end
    if len(names) == 1:
        names = [""]
    room = right - left - GAP * (len(names) - 1)
    widths = [
        room * (1 - _STRETCHED * (len(names) - 1)) if name in ("run", "") else room * _STRETCHED for name in names
    ]
    made = []
    at = left
    for name, low, high, width in zip(names, cuts, cuts[1:], widths):
        made.append(Panel(name, low, high, at, at + width))
        at += width + GAP
    return made


def place(axis: Sequence[Panel], time: float) -> float:
    """Where a time lies on an axis of panels; never falling with the time."""
    for panel in axis:
        if time <= panel.high:
            return panel.place(time)
    return axis[-1].right


def spans(axis: Sequence[Panel], low: float, high: float) -> Iterator[tuple[float, float]]:
    """The parts of an axis that the times from `low` to `high` take, as (left, right); one for each panel touched."""
    for panel in axis:
        if low <= panel.high and high >= panel.low and panel.low < panel.high:
            yield panel.place(low), panel.place(high)
