"""Writes the results of a run into a page, between two marks: a table for each victim, and what was wrong."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos_lib import ChaosError, cells
from chaos_lib.cells import Cell

BEGIN, END = "<!-- written by scripts/chaos --write -->", "<!-- end of what scripts/chaos has written -->"
RIGHT, NO_SENSE, NOT_TRIED = "✓", "–", "?"
_Results = Mapping[str, Mapping[str, Any]]


def write(page: Path, results: _Results) -> None:
    """Replace what is between the marks.  Raises ChaosError if the page has none."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ChaosError(f"{page} has no line {BEGIN!r}, or none {END!r} after it")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{head}{BEGIN}\n\n{render(results)}\n{END}{tail}", encoding="utf-8")


def render(results: _Results) -> str:
    """All tables, the notes below them."""
    notes: list[str] = []
    tables = [_table(who, results, notes) for who in cells.WHO]
    return "\n".join([_head(results), *tables, *_legend(notes)])


def _head(results: _Results) -> str:
    known = [results[name] for name in map(str, cells.all_cells()) if name in results]
    right = sum(_is_right(result) for result in known)
    dates = sorted(datetime.date.fromtimestamp(result["date"]).isoformat() for result in known if "date" in result)
    commits = sorted({result["commit"] for result in known if "commit" in result})
    span = f"{dates[0]} to {dates[-1]}" if dates and dates[0] != dates[-1] else "".join(dates[:1])
    again = sum(result.get("tries", 1) > 1 and _is_right(result) for result in known)
    text = f"{len(cells.all_cells())} cells, {len(known)} tried ({span}, commit {', '.join(commits)}): {right} right"
    text += f" ({again} of them only when tried again, alone)" if again else ""
    return f"{text}, {len(known) - right} wrong.\n"


def _table(who: str, results: _Results, notes: list[str]) -> str:
    whats = cells.what_for(who)
    lines = [f"**{cells.WHO[who][0].upper()}{cells.WHO[who][1:]}** (`{who}`)\n"]
    lines += ["| | " + " | ".join(whats) + " |", "|---|" + "---|" * len(whats)]
    for when in cells.WHEN:
        row = [_mark(Cell(who, when, what), results, notes) for what in whats]
        if set(row) != {NO_SENSE}:
            lines.append(f"| {when} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _mark(cell: Cell, results: _Results, notes: list[str]) -> str:
    if cells.no_sense(cell):
        return NO_SENSE
    result = results.get(str(cell))
    if result is None:
        return NOT_TRIED
    if _is_right(result):
        return RIGHT
    note = _note(result)
    if note not in notes:
        notes.append(note)
    return f"✗ {notes.index(note) + 1}"


def _is_right(result: Mapping[str, Any]) -> bool:
    return not result["wrong"] and not result["error"]


def _note(result: Mapping[str, Any]) -> str:
    """Without what differs from run to run: process ids, paths, times."""
    text = "; ".join(result["wrong"]) or f"not tried: {result['error'].splitlines()[0]}"
    text = re.sub(r": \d+ [A-Z] ", ": ", text)
    text = re.sub(r": \S*/python3? [^;]*", "", text)
    text = re.sub(
        r"\d+ of \d+ lines of rank \d+ are not in its log: [^;]*", "lines of ranks are not in their logs", text
    )
    return text.replace("|", "\\|")


def _legend(notes: list[str]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for who in cells.WHO:
        for when in cells.WHEN:
            for what in cells.what_for(who):
                why = cells.no_sense(Cell(who, when, what))
                if why and f"{who}/{when}" not in reasons.setdefault(why, []):
                    reasons[why].append(f"{who}/{when}")
    lines = [f"{RIGHT}: right; {NO_SENSE}: makes no sense; {NOT_TRIED}: not tried."]
    if notes:
        lines += ["\nWhat was wrong:\n", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
    lines += ["\nWhy a cell makes no sense:\n", *(f"- {why} ({_short(where)})" for why, where in reasons.items())]
    return lines


def _short(places: list[str]) -> str:
    by_when: dict[str, list[str]] = {}
    for place in places:
        who, _, when = place.partition("/")
        by_when.setdefault(when, []).append(who)
    by_who: dict[str, list[str]] = {}
    for when, who_list in by_when.items():
        by_who.setdefault(", ".join(who_list), []).append(when)
    return "; ".join(f"{who}: {', '.join(whens)}" for who, whens in by_who.items())
