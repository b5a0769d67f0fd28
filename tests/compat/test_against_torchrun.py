"""The torchrun dialect gives the recorded answers of the real torchrun (`torchrun_lines`), or differs on purpose.

Recorded with torch 2.15.0: the environment of every rank, exit codes, what reaches the terminal, log files.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torchrun_lines

LINES = {line.name: line for line in torchrun_lines.LINES}
ANSWERS = torchrun_lines.answers()
OURS = [sys.executable, str(torchrun_lines.HERE / "programs" / "mslaunch"), "--dialect", "torchrun"]
#: it promises a store that torchrun's own process serves; here the first rank serves it, as without a launcher
NOT_OURS = "TORCHELASTIC_USE_AGENT_STORE"
DELIBERATE: dict[str, str] = {
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<$rank> --nproc-per-node=2 -t 1 tells.py": "the variable is the launcher's",
}


@pytest.mark.parametrize("name", LINES)
def test_the_answer_is_that_of_torchrun(name: str) -> None:
    ours = torchrun_lines.run(LINES[name], OURS, sys.executable)
    theirs = json.loads(json.dumps(ANSWERS[name]))
    for env, *_ in theirs["seen"].values():
        assert env.pop(NOT_OURS) == "True"
    found = differences(theirs, ours)
    if name in DELIBERATE:
        assert found, "it is listed as a difference, and is as recorded"
    else:
        assert not found, "\n".join(found)


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """What is not the same, a line each."""
    found = [f"{part}: {theirs[part]} there, {ours[part]} here" for part in ("rc", "stdout", "stderr", "logs")
             if theirs[part] != ours[part]]  # fmt: skip
    for who in sorted({*theirs["seen"], *ours["seen"]}):
        there, here = theirs["seen"].get(who), ours["seen"].get(who)
        if not (there and here):
            found.append(f"{who}: {there} there, {here} here")
            continue
        names = sorted({*there[0], *here[0]})
        found += [f"{who}: {name}={there[0].get(name)} there, {here[0].get(name)} here" for name in names
                  if there[0].get(name) != here[0].get(name)]  # fmt: skip
        if there[1:] != here[1:]:
            found.append(f"{who}: {there[1:]} there, {here[1:]} here")
    return found


def test_every_line_was_recorded() -> None:
    assert list(ANSWERS) == list(LINES) and len(LINES) > 60
    assert set(DELIBERATE) <= set(LINES)
