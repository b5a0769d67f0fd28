"""Many launches: nothing may grow."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from chaos_lib.sandbox import PLACES, PYTHON, ROOT, Sandbox
from chaos_lib.trial import wait_until

from soak_lib.traces import Traces

PROGRAM = Path(__file__).resolve().parent / "programs" / "launches.py"
GROWTH = 8192  #: KiB by which a process may have grown that has launched by the API
SETTLED = 10.0  #: seconds in which the last launch's sessions may go


def environment() -> dict[str, str]:
    """Of a user who has set nothing."""
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}


def run(sandbox: Sandbox, count: int) -> dict[str, Any]:
    """`count` launches; the record."""
    before = Traces.of(sandbox, PLACES)
    began = time.monotonic()
    words = sandbox.command("exec", "head", PYTHON, str(PROGRAM), str(count))
    with subprocess.Popen(words, cwd=sandbox.run, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        last: dict[str, Any] = {}
        for line in process.stdout:
            last = json.loads(line)
            print(f"launches: {last}", flush=True)
    seconds = time.monotonic() - began
    wait_until(lambda: not Traces.of(sandbox, PLACES).differences(before), SETTLED)
    after = Traces.of(sandbox, PLACES)
    wrong = after.differences(before)
    if process.returncode:
        wrong.append(f"the launches ended with {process.returncode}")
    wrong += [f"{number} launches were wrong: {kind}" for kind, number in last.get("wrong", {}).items()]
    wrong += _grown(last)
    places = {"before": before._asdict(), "after": after._asdict()}
    return {**last, "what": "launches", "seconds": round(seconds, 1), "wrong": wrong, "places": places}


def _grown(last: dict[str, Any]) -> list[str]:
    before, after = last.get("before"), last.get("after")
    if not before or not after:
        return ["no figures of the process that used the API"]
    wrong = [f"{after[name] - before[name]} {name} more in a process that used the API"
             for name in ("descriptors", "threads") if after[name] > before[name]]  # fmt: skip
    if after["memory_kib"] - before["memory_kib"] > GROWTH:
        wrong.append(f"a process that used the API has grown by {after['memory_kib'] - before['memory_kib']} KiB")
    return wrong
