"""The figure of many ranks: a block for each host, in it a cell for each rank, coloured by one of several measures.

So a rank, or a host, that differs from the others is seen among thousands.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.reports import rank_ends
from mslaunch.reports.figure import WIDTH
from mslaunch.reports.rank_ends import RankEnd
from mslaunch.reports.wording import coordinate, duration, shortened, size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.reports.recorded_run import RecordedAttempt, RecordedHost

CLASSES = 6  #: shades of a measure
MOST_CELLS = 20_000  #: a cell stands for several hosts beyond that
_TOP = 4.0
_NAME = 18  # characters of a host
_HEIGHT = 460.0  # about, of the largest figures
_SPREAD = 30.0  # shades are equal factors, not equal distances, if values differ by more than this factor


class CellBlock(NamedTuple):
    """A host, or several, and its cells."""

    name: str
    cells: tuple[tuple[RankEnd, ...], ...]


class GridLayer(NamedTuple):
    """One measure: a path for each class of cells, and what the classes mean."""

    id: str
    title: str
    paths: tuple[tuple[str, str], ...]  # (class, path)
    legend: tuple[tuple[str, str], ...]  # (class, meaning)


class RankGrid(NamedTuple):
    """The figure; lengths are pixels."""

    cell: float
    columns: int  # cells beside each other in a block
    block_width: float
    block_height: float
    per_row: int
    height: str
    names: tuple[tuple[str, str, str], ...]  # (y, short name, whole name) of the first block of a row
    layers: tuple[GridLayer, ...]
    ring: str  # the cell of the first failure
    one_rank: bool  # each cell is one rank
    left: float
    top: float = _TOP


def blocks_of(ends: Sequence[RankEnd], hosts: Sequence[RecordedHost]) -> list[CellBlock]:
    """A block for each host, with a cell for each rank; or, if these are too many, a block with one cell for some."""
    by_host: dict[int, list[RankEnd]] = {}
    for each in sorted(ends, key=lambda each: (each.rank.host, each.rank.local_rank, each.rank.rank)):
        by_host.setdefault(each.rank.host, []).append(each)
    if len(ends) <= MOST_CELLS:
        return [CellBlock(hosts[host].name, tuple((each,) for each in group)) for host, group in by_host.items()]
    groups = list(by_host.items())
    together = -(-len(groups) // MOST_CELLS)
    return [
        CellBlock(
            hosts[groups[at][0]].name, (tuple(each for _, group in groups[at : at + together] for each in group),)
        )
        for at in range(0, len(groups), together)
    ]


def draw(attempt: RecordedAttempt, hosts: Sequence[RecordedHost]) -> RankGrid:
    """The figure of an attempt that has ranks."""
    blocks = blocks_of(rank_ends.ends_of(attempt), hosts)
    left = 14.0 + 6.6 * min(_NAME, max(len(block.name) for block in blocks))
    cell, columns, rows, gap = _sizes(blocks, WIDTH - left)
    width, height = columns * cell + gap, rows * cell + gap
    per_row = max(1, int((WIDTH - left) / width))
    places = [
        [
            (
                left + at % per_row * width + number % columns * cell,
                _TOP + at // per_row * height + number // columns * cell,
            )
            for number in range(len(block.cells))
        ]
        for at, block in enumerate(blocks)
    ]
    flat = [(cells, place) for block, row in zip(blocks, places) for cells, place in zip(block.cells, row)]
    ring = next((place for cells, place in flat if any(each.kind == rank_ends.FIRST for each in cells)), None)
    rows_of_blocks = -(-len(blocks) // per_row)
    every = max(1, int(12 // height) + 1) if height < 12 else 1
    names = tuple(
        (coordinate(_TOP + at * height + min(height, 12.0) - 2), shortened(name, _NAME), name)
        for at in range(0, rows_of_blocks, every)
        for name in [blocks[at * per_row].name]
    )
    return RankGrid(
        cell,
        columns,
        width,
        height,
        per_row,
        coordinate(_TOP + rows_of_blocks * height + 4),
        names,
        tuple(_layers(attempt, flat, cell)),
        _outline(*ring, cell) if ring else "",
        len(flat) == len(attempt.ranks),
        left,
    )


def _sizes(blocks: Sequence[CellBlock], room: float) -> tuple[float, int, int, float]:
    """(length of a cell, columns and rows of a block, gap between blocks), so that the figure is not too high."""
    from math import log2

    most = max(len(block.cells) for block in blocks)
    columns = 2 ** round(log2((2 * most) ** 0.5))
    rows = -(-most // columns)
    for cell in (16, 14, 12, 10, 9, 8, 7, 6, 5, 4):
        gap = 1.0 if most == 1 else max(3.0, cell * 0.5)
        per_row = max(1, int(room / (columns * cell + gap)))
        if -(-len(blocks) // per_row) * (rows * cell + gap) <= _HEIGHT:
            break
    return float(cell), columns, rows, gap


def _square(x: float, y: float, cell: float) -> str:
    inner = coordinate(cell - 1)
    return f"M{coordinate(x)} {coordinate(y)}h{inner}v{inner}h-{inner}z"


def _outline(x: float, y: float, cell: float) -> str:
    return _square(x - 2.5, y - 2.5, cell + 5)


def _layers(
    attempt: RecordedAttempt, flat: list[tuple[tuple[RankEnd, ...], tuple[float, float]]], cell: float
) -> list[GridLayer]:
    kinds = list(rank_ends.KINDS)
    worst = [min((each.kind for each in cells), key=kinds.index) for cells, _ in flat]
    legend = tuple((f"bar-{kind}", rank_ends.KINDS[kind]) for kind in kinds if kind in worst)
    layers = [GridLayer("end", "how it ended", _paths([f"bar-{kind}" for kind in worst], flat, cell), legend)]
    for id, title, value, text in (
        (
            "start",
            "when it started",
            lambda rank: None if rank.started is None else rank.started - attempt.began,
            duration,
        ),
        ("silence", "its longest silence", lambda rank: rank.silence, duration),
        ("output", "how much it printed", lambda rank: None if rank.bytes is None else float(rank.bytes), size),
    ):
        values = [
            max((found for each in cells if (found := value(each.rank)) is not None), default=None) for cells, _ in flat
        ]
        known = [found for found in values if found is not None]
        if known and max(known) > min(known):
            layers.append(_shaded(id, title, values, text, flat, cell))
    return layers


def _shaded(
    id: str,
    title: str,
    values: Sequence[float | None],
    text: Callable[[float], str],
    flat: list[tuple[tuple[RankEnd, ...], tuple[float, float]]],
    cell: float,
) -> GridLayer:
    bounds = breaks([value for value in values if value is not None])
    looks = ["shade-none" if value is None else f"shade-{shade(value, bounds)}" for value in values]
    legend = [
        (f"shade-{at}", f"{text(low)} – {text(high)}")
        for at, (low, high) in enumerate(zip(bounds, bounds[1:]))
        if f"shade-{at}" in looks
    ]
    legend += [("shade-none", "not known")] if None in values else []
    return GridLayer(id, title, _paths(looks, flat, cell), tuple(legend))


def _paths(
    looks: Sequence[str], flat: list[tuple[tuple[RankEnd, ...], tuple[float, float]]], cell: float
) -> tuple[tuple[str, str], ...]:
    paths: dict[str, list[str]] = {}
    for look, (_, (x, y)) in zip(looks, flat):
        paths.setdefault(look, []).append(_square(x, y, cell))
    return tuple((look, "".join(squares)) for look, squares in paths.items())


def breaks(values: Sequence[float]) -> list[float]:
    """The `CLASSES` + 1 bounds of the shades of at least one value, rising.

    They are equally far from each other, or equal factors if the values differ by much.
    """
    low, high = min(values), max(values)
    positive = min((value for value in values if value > 0), default=0.0)
    if positive and high / positive > _SPREAD:
        floor = max(positive, high / 1e6)
        factor = (high / floor) ** (1 / CLASSES)
        return [low, *(floor * factor**at for at in range(1, CLASSES)), high]
    return [*(low + (high - low) * at / CLASSES for at in range(CLASSES)), high]


def shade(value: float, bounds: Sequence[float]) -> int:
    """The class of a value between the first and the last of the bounds."""
    return next((at for at in range(CLASSES - 1) if value < bounds[at + 1]), CLASSES - 1)
