"""Whether every launch ends.  Open MPI 4.1's mpirun sometimes hangs, which a single launch would not show."""

from __future__ import annotations

from collections.abc import Mapping

from bench_lib import timing
from bench_lib.contenders import MPIRUN, OURS, Launcher, local
from bench_lib.table import Row, measured

RANKS = 64
BOUNDS = {OURS: 20.0, MPIRUN: 5.0}  #: seconds; a good launch takes a fraction of one


def ends(launchers: Mapping[str, Launcher], counts: Mapping[str, int]) -> list[Row]:
    """Launch `counts[name]` times; the target is that all of ours end well."""
    found = []
    for name, count in counts.items():
        if name not in launchers:
            continue
        argv, samples = local(launchers[name], RANKS, ["true"]), []
        with timing.adopting():
            for turn in range(count):
                samples.append(timing.bounded(argv, BOUNDS[name]))
                if turn % 10 == 0:
                    timing.show_progress(f"{name}: {turn} of {count}")
        timing.show_progress("")
        found.append(_row(name, samples))
    return found


def _row(name: str, samples: list[timing.Sample]) -> Row:
    what = f"{len(samples)} launches of {RANKS} × true, {BOUNDS[name]:g} s each"
    cells = (what, name, *measured(samples), "")
    if name != OURS:
        return Row((*cells, "", ""))
    reached = all(sample.good for sample in samples)
    return Row((*cells, "all", "reached" if reached else "NOT REACHED"), not reached)
