"""What must be true at the end of a cell: exit code, message, output."""

from __future__ import annotations

import re
from pathlib import Path

from chaos_lib.cells import Cell
from chaos_lib.expectations import EITHER, GOES_ON, KILLED, Expected
from chaos_lib.sandbox import Sandbox

KEPT = 0.2  #: what a rank wrote so many seconds before the fault is in its log


def of_end(expected: Expected, code: int, said: str) -> list[str]:
    """Exit code and message."""
    wrong = []
    if code not in expected.codes:
        wrong.append(f"exit code {code}, not {' or '.join(map(str, expected.codes))}")
    if "Traceback" in said:
        wrong.append("a traceback")
    if expected.fate == KILLED:
        return wrong
    if expected.cause:
        count = len(re.findall(expected.cause, said, re.M))
        if count != 1:
            wrong.append(f"the cause is named {count} times, not once: /{expected.cause}/")
    failures = re.findall(r"^mslaunch: .*, after [0-9.]+ s$", said, re.M)
    if len(failures) > 1:
        wrong.append(f"{len(failures)} failures are reported, not one")
    if expected.fate in (GOES_ON, EITHER) and code == 0 and failures and "succeeded" not in failures[0]:
        wrong.append("a failure is reported, and the exit code is 0")
    if code != 0 and "mslaunch:" not in said:
        wrong.append("it failed without a word")
    return wrong


def of_output(cell: Cell, expected: Expected, sandbox: Sandbox, struck: float) -> list[str]:
    """Every line that a rank had printed in time is in its log."""
    if cell.what == "disk" or cell.when == "between":
        return []
    wrong = []
    for truth in sorted(sandbox.run.glob("truth.rank.*")):
        rank = truth.name.rpartition(".")[2]
        printed = _lines(truth)
        if expected.fate != GOES_ON:
            printed = [line for line in printed if float(line.split()[2]) < struck - KEPT]
        logged = set(_lines(_log(sandbox, rank)))
        missing = [line for line in printed if line not in logged]
        if missing:
            wrong.append(f"{len(missing)} of {len(printed)} lines of rank {rank} are not in its log: {missing[0]!r}")
    return wrong


def _log(sandbox: Sandbox, rank: str) -> Path:
    found = [path for path in (sandbox.run / "logs").glob("1/rank.*/stdout") if _same(path, rank)]
    return found[0] if found else sandbox.run / "logs" / "missing"


def _same(path: Path, rank: str) -> bool:
    return int(path.parent.name.partition(".")[2]) == int(rank)


def _lines(path: Path) -> list[str]:
    """Whole lines only."""
    if not path.exists():
        return []
    return path.read_text(errors="replace").rpartition("\n")[0].splitlines()
