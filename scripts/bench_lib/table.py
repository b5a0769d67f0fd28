"""Results as rows of one Markdown table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench_lib.against import UPPER_END, interval
from bench_lib.contenders import BASE
from bench_lib.timing import Sample, cpu_ratios, median, ratio, ratios

HEAD = ("what", "launcher", "median", "fastest", "CPU", "ended well", "mslaunch takes", "target", "")
NO_TARGETS: Mapping[str, float] = {}


class Row(NamedTuple):
    cells: tuple[str, ...]
    missed: bool = False


def rows(
    what: str, ours: str, results: Mapping[str, Sequence[Sample]], targets: Mapping[str, float] = NO_TARGETS
) -> list[Row]:
    """One row for each launcher; `targets` are the ratios to others that are to be reached (0: none)."""
    found = []
    hopeless = not any(sample.good for sample in results[ours])
    for name, samples in results.items():
        factor = ratio(results[ours], samples) if name != ours else float("nan")
        cells = (what, name, *measured(samples), times(factor))
        if name == BASE:
            found.append(compared(cells, ratios(results[ours], samples), cpu_ratios(results[ours], samples)))
        else:
            found.append(_judged(cells, factor, targets.get(name, 0.0), hopeless))
        what = ""
    return found


def measured(samples: Sequence[Sample]) -> tuple[str, ...]:
    """The cells from median to "ended well", of the runs that did."""
    good = [sample for sample in samples if sample.good]
    ended, hung = f"{len(good)} of {len(samples)}", sum(sample.hung for sample in samples)
    if hung:
        ended += f", {hung} hung"
    peak = max((sample.peak for sample in good), default=0)
    if peak:
        ended += f"; {peak / 1024:.0f} MiB"
    if not good:
        return "–", "–", "–", ended
    cpu = statistics.median(sample.cpu for sample in good)
    return seconds(median(samples)), seconds(min(sample.seconds for sample in good)), seconds(cpu), ended


def compared(cells: tuple[str, ...], wall: Sequence[float], cpu: Sequence[float]) -> Row:
    """With the 95 % intervals of the ratios; the upper end of that of wall time counts."""
    reached = interval(wall)[1] <= UPPER_END  # never true of a nan
    took = _interval_text(wall) + (f", CPU {_interval_text(cpu)}" if cpu else "")
    return Row((*cells[:-1], took, f"upper end ≤ {UPPER_END:g}", "reached" if reached else "NOT REACHED"), not reached)


def _interval_text(found: Sequence[float]) -> str:
    low, high = interval(found)
    return f"{statistics.median(found):.3f} × ({low:.3f} to {high:.3f})" if found else ""


def _judged(cells: tuple[str, ...], factor: float, target: float, hopeless: bool) -> Row:
    """`hopeless`: we never ended well ourselves, so there is no excuse in the other's hanging."""
    if not target:
        return Row((*cells, "", ""))
    if math.isnan(factor) and not hopeless:
        return Row((*cells, f"≤ {target:g}", "no comparison"))
    reached = factor <= target  # never true of a nan
    return Row((*cells, f"≤ {target:g}", "reached" if reached else "NOT REACHED"), not reached)


def seconds(value: float) -> str:
    if value < 0.001:
        return f"{value * 1e6:.2f} µs" if value else ""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def times(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f} ×"


def show(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table, in columns that a terminal shows straight."""
    table = [tuple(head), *(tuple(line) for line in lines)]
    widths = [max(3, *(len(line[column]) for line in table)) for column in range(len(head))]
    shown = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in table]
    shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(shown) + "\n"
