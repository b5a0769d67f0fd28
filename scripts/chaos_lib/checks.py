"""What must be true at the end of a cell: exit code, message, output."""

from __future__ import annotations

import json
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


def of_events(sandbox: Sandbox, code: int | None) -> list[str]:
    """The file of --events has one `end`, which is the last, with the launch's exit code, and no value of -x."""
    text = (sandbox.run / "events").read_text(errors="replace") if (sandbox.run / "events").exists() else ""
    wrong = ["the events have a value of -x"] if f"CHAOS_RUN={sandbox.run}" in text else []
    events = [json.loads(line) for line in text.splitlines()]
    names = [event["event"] for event in events]
    if names.count("end") != 1 or names[-1] != "end":
        return [*wrong, f"the events end in {names[-2:]}, with {names.count('end')} end(s)"]
    said = events[-1]["code"]
    same = code is None or said == code or code < 0  # of a launcher that was killed
    return wrong if same else [*wrong, f"the last event says exit code {said}, and it was {code}"]


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
