"""A figure as a list of shapes, which a template writes as SVG.

Lengths are pixels of a figure that is `WIDTH` wide.  What a shape looks like is told by its class, for which the style
sheet has a light and a dark colour.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.reports import time_axis
from mslaunch.reports.wording import coordinate, tick_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.reports.time_axis import Panel

WIDTH = 1120.0
_TICKS = 76.0  # pixels between ticks, at least


class RectShape(NamedTuple):
    """A rectangle; `hint` is shown while the pointer rests on it."""

    x: str
    y: str
    width: str
    height: str
    look: str
    hint: str = ""
    kind: str = "rect"


class LineShape(NamedTuple):
    """A straight line."""

    x1: str
    y1: str
    x2: str
    y2: str
    look: str
    hint: str = ""
    kind: str = "line"


class LabelShape(NamedTuple):
    """A text; `anchor` is start, middle or end."""

    x: str
    y: str
    text: str
    look: str = ""
    anchor: str = "start"
    hint: str = ""
    kind: str = "label"


class PathShape(NamedTuple):
    """A path in SVG's words."""

    d: str
    look: str
    hint: str = ""
    kind: str = "path"


if TYPE_CHECKING:
    Shape = RectShape | LineShape | LabelShape | PathShape


class Figure(NamedTuple):
    """Shapes, and what they show in words."""

    id: str
    title: str
    description: str
    height: str
    shapes: tuple[Shape, ...]
    width: str = coordinate(WIDTH)


def rect(x: float, y: float, width: float, height: float, look: str, hint: str = "") -> RectShape:
    """A rectangle that is wide enough to be seen."""
    return RectShape(coordinate(x), coordinate(y), coordinate(max(width, 1.0)), coordinate(height), look, hint)


def line(x1: float, y1: float, x2: float, y2: float, look: str, hint: str = "") -> LineShape:
    """A line between two points."""
    return LineShape(coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2), look, hint)


def label(x: float, y: float, text: str, look: str = "", anchor: str = "start", hint: str = "") -> LabelShape:
    """A text whose base line is at `y`."""
    return LabelShape(coordinate(x), coordinate(y), text, look, anchor, hint)


def cross(x: float, y: float, radius: float, look: str, hint: str = "") -> PathShape:
    """An x: the first failure."""
    d = coordinate(2 * radius)
    return PathShape(f"M{coordinate(x - radius)} {coordinate(y - radius)}l{d} {d}m0-{d}l-{d} {d}", look, hint)


def triangle(x: float, y: float, radius: float, look: str, hint: str = "") -> PathShape:
    """A triangle that stands on its base: a restart."""
    return PathShape(
        f"M{coordinate(x - radius)} {coordinate(y + radius)}h{coordinate(2 * radius)}l-{coordinate(radius)}-"
        f"{coordinate(2 * radius)}z",
        look,
        hint,
    )


def diamond(x: float, y: float, radius: float, look: str, hint: str = "") -> PathShape:
    """A square on its corner: a hang, or a lost host."""
    r = coordinate(radius)
    return PathShape(f"M{coordinate(x - radius)} {coordinate(y)}l{r}-{r}l{r} {r}l-{r} {r}z", look, hint)


def steps(points: Sequence[tuple[float, float]], base: float, right: float, look: str, hint: str = "") -> PathShape:
    """An area below steps: from each x on its y, until `right`, above the line `base`."""
    if not points:
        return PathShape("", look, hint)
    words = [f"M{coordinate(points[0][0])} {coordinate(base)}"]
    before = ""
    for x, y in points:
        if coordinate(y) != before:
            before = coordinate(y)
            words.append(f"H{coordinate(x)}V{before}")
    return PathShape("".join([*words, f"H{coordinate(right)}V{coordinate(base)}z"]), look, hint)


def axis_shapes(axis: Sequence[Panel], top: float, bottom: float) -> Iterable[Shape]:
    """The ticks of an axis of panels, their lines from `top` to `bottom`, and the times below them."""
    for panel in axis:
        if len(axis) > 1:
            yield rect(panel.left, top, panel.right - panel.left, bottom - top, "panel")
            yield label(panel.left + 1, top - 5, panel.name, "panel-name")
        most = max(1, int((panel.right - panel.left) / _TICKS))
        step = time_axis.step(panel.low, panel.high, most)
        last = -1e9
        for tick in time_axis.ticks(panel.low, panel.high, most):
            x = panel.place(tick)
            yield line(x, top, x, bottom, "tick")
            anchor = "end" if x > panel.right - 24 else "start" if x < panel.left + 6 and len(axis) > 1 else "middle"
            if x - last >= _TICKS * 0.6:
                yield label(x, bottom + 15, tick_label(tick, step), "tick-label", anchor)
                last = x
