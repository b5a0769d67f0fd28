"""Results as Markdown: a table of time and one of memory, with a column for each number of hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from simulate_lib import SimulateError
from simulate_lib.measure import Step

BEGIN, END = "<!-- written by scripts/simulate --write -->", "<!-- end of what scripts/simulate has written -->"


def render(steps: Sequence[Step], notes: Sequence[str]) -> str:
    """The tables, and the notes below them."""
    return "\n".join(
        [
            *_table("CPU time of the launcher, and µs a host", steps, _time),
            "",
            *_table("seconds that passed", steps, lambda step: _seconds(step.seconds)),
            "",
            *_table("memory of the launcher, bytes a host", steps, _memory),
            *[f"\n{note}" for note in notes],
            "",
        ]
    )


def _table(title: str, steps: Sequence[Step], cell: Callable[[Step], str]) -> list[str]:
    numbers = sorted({step.nodes for step in steps})
    found = {(step.name, step.nodes): step for step in steps}
    rows = [f"| {title} | " + " | ".join(f"{number:,} hosts" for number in numbers) + " |"]
    rows.append("|---|" + "---|" * len(numbers))
    for name in dict.fromkeys(step.name for step in steps):
        cells = [cell(found[name, number]) if (name, number) in found else "–" for number in numbers]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def _time(step: Step) -> str:
    return f"{_seconds(step.cpu)}, {step.cpu / step.nodes * 1e6:,.0f}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _memory(step: Step) -> str:
    return f"{step.grown / step.nodes:,.0f}"


def write(page: Path, steps: Sequence[Step], notes: Sequence[str]) -> None:
    """Replace what is between the marks.  Raises SimulateError if the page has none."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SimulateError(f"{page} has no line {BEGIN!r}, or none {END!r} after it")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{head}{BEGIN}\n\n{render(steps, notes)}\n{END}{tail}", encoding="utf-8")
