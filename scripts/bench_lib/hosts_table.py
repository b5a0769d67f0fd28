"""Rows about SSH hosts, and the targets that they are judged by: wall time, CPU, and whether every run ended well."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench_lib import table
from bench_lib.contenders import BASE, OURS, SSH
from bench_lib.table import NO_TARGETS, Row
from bench_lib.timing import Sample, cpu_ratios, ratio, ratios

HEAD = (*table.HEAD[:5], "CPU of a host in all", *table.HEAD[5:])


class Targets(NamedTuple):
    """What mslaunch has to reach; nothing by default."""

    wall: Mapping[str, float] = NO_TARGETS  # ratio to another launcher, by its name
    cpu: Mapping[str, float] = NO_TARGETS  # likewise, of the CPU of launcher and hosts together
    of_a_host: float = 0.0  # seconds of CPU in all for each host
    all_end: bool = False  # each run of ours has to end well


class Judgement(NamedTuple):
    """What was measured, beside its target."""

    measured: str
    target: str
    reached: bool | None  # None: the other never ended well, so there is nothing to compare with


def rows(what: str, count: int, results: Mapping[str, Sequence[Sample]], targets: Targets) -> list[Row]:
    """One row for each command that was run for these `count` hosts; `ssh` uses but one of them."""
    found = []
    for name, samples in results.items():
        median, fastest, cpu, ended = table.measured(samples)
        each = milliseconds(of_a_host(samples, 1 if name == SSH else count))
        cells = (what, name, median, fastest, cpu, each, ended)
        if name == BASE:
            pairs = ratios(results[OURS], samples), cpu_ratios(results[OURS], samples)
            found.append(table.compared((*cells, ""), *pairs))
        elif name == OURS:
            found.append(_row(cells, "", of_ours(samples, count, targets)))
        else:
            factor = ratio(results[OURS], samples)
            found.append(_row(cells, table.times(factor), against(name, results[OURS], samples, targets)))
        what = ""
    return found


def _row(cells: tuple[str, ...], takes: str, judged: Sequence[Judgement]) -> Row:
    words = {True: "reached", False: "NOT REACHED", None: "no comparison"}
    texts = [takes, *(one.measured for one in judged)]
    target = ", ".join(one.target for one in judged)
    verdict = ", ".join(words[one.reached] for one in judged)
    return Row((*cells, ", ".join(filter(None, texts)), target, verdict), any(one.reached is False for one in judged))


def of_ours(samples: Sequence[Sample], count: int, targets: Targets) -> list[Judgement]:
    """What is asked of us alone."""
    found = []
    if targets.all_end:
        found.append(Judgement("", "all end", bool(samples) and all(sample.good for sample in samples)))
    if targets.of_a_host:
        reached = of_a_host(samples, count) <= targets.of_a_host  # never true of a nan
        found.append(Judgement("", f"CPU of a host ≤ {milliseconds(targets.of_a_host)}", reached))
    return found


def against(name: str, ours: Sequence[Sample], theirs: Sequence[Sample], targets: Targets) -> list[Judgement]:
    """What is asked of us beside another."""
    hopeless = not any(sample.good for sample in ours)  # then there is no excuse in the other's hanging

    def judge(measured: str, kind: str, found: Sequence[float], target: float) -> Judgement:
        reached = statistics.median(found) <= target if found else False if hopeless else None
        return Judgement(measured, f"{kind}≤ {target:g}", reached)

    judged = []
    if name in targets.wall:
        judged.append(judge("", "", ratios(ours, theirs), targets.wall[name]))
    if name in targets.cpu:
        found = cpu_ratios(ours, theirs)
        took = f"CPU {table.times(statistics.median(found))}" if found else ""
        judged.append(judge(took, "CPU ", found, targets.cpu[name]))
    return judged


def of_a_host(samples: Sequence[Sample], count: int) -> float:
    """Seconds of CPU in all for each host, launcher included: the median of runs that ended well; nan if none did."""
    found = [sample.all_cpu / count for sample in samples if sample.good]
    return statistics.median(found) if found else math.nan


def milliseconds(value: float) -> str:
    return "–" if math.isnan(value) else f"{value * 1000:.0f} ms"
