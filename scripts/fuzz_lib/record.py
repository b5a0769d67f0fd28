"""The table of docs/fuzzing.md: for each decoder how many inputs it has had, and when it had the last of them."""

from __future__ import annotations

import subprocess
import time

from fuzz_lib.run import Result
from fuzz_lib.targets import ROOT, TARGETS

PAGE = ROOT / "docs" / "fuzzing.md"
_BEGIN, _END = "<!-- counts: scripts/fuzz --record -->\n", "<!-- end -->\n"
_HEAD = "| decoder | of what | inputs | seconds | findings | last run | commit |\n|---|---|---|---|---|---|---|\n"


def write(name: str, result: Result) -> None:
    """Add a run to the table."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    table, _, after = rest.partition(_END)
    rows = {cells[0]: cells for cells in map(_cells, table.splitlines()[2:])}
    known = rows.get(name, [name, "", "0", "0", "0", "", ""])
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    numbers = [result.inputs, round(result.seconds), result.findings]
    sums = [f"{int(cell.replace(',', '')) + more:,}" for cell, more in zip(known[2:5], numbers)]
    rows[name] = [name, TARGETS[name].what, *sums, time.strftime("%Y-%m-%d"), commit]
    lines = "".join(f"| {' | '.join(rows[each])} |\n" for each in TARGETS if each in rows)
    PAGE.write_text(f"{before}{_BEGIN}{_HEAD}{lines}{_END}{after}", encoding="utf-8")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
