"""The plot: CPU time of each step over the number of hosts, both logarithmic, as SVG.  Needs matplotlib (dev extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulate_lib import SimulateError
from simulate_lib.measure import Step


def plot(path: Path, steps: Sequence[Step]) -> None:
    """Write the file.  Raises SimulateError without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        raise SimulateError("the plot needs matplotlib: pip install -e '.[dev]'") from None
    matplotlib.rcParams.update({"svg.hashsalt": "mslaunch", "font.size": 9})
    figure, axes = pyplot.subplots(figsize=(9, 5.5))
    for name in dict.fromkeys(step.name for step in steps):
        found = sorted((step.nodes, step.cpu) for step in steps if step.name == name)
        whole = name.startswith("all of")
        axes.plot(*zip(*found), marker="o", markersize=3, linewidth=2.5 if whole else 1.2, label=name)
    numbers = sorted({step.nodes for step in steps})
    scale = 1e-4
    axes.plot(numbers, [scale * number for number in numbers], "k:", linewidth=1, label="100 µs a host")
    axes.set(xscale="log", yscale="log", xlabel="hosts", ylabel="CPU time of the launcher, seconds")
    axes.grid(True, which="major", linewidth=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
