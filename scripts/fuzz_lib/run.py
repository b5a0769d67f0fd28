"""Runs a decoder in a process of its own, and reads what libFuzzer says about it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fuzz_lib import FuzzError
from fuzz_lib.targets import ROOT, seeds_of

FINDINGS = ROOT / ".cache" / "fuzz"
_LARGEST = 1 << 16  # bytes of an input
_HANGS = 60  # seconds, real ones, after which libFuzzer ends an input; a busy machine may take long
_LAST = 25  # lines of its output


class Result(NamedTuple):
    """What a run has done."""

    inputs: int
    seconds: float
    findings: int  # 0 or 1: a run ends with the first
    text: str  # the finding, and where its input is


def fuzz(name: str, inputs: int, seconds: int, corpus: str | None = None) -> Result:
    """Run it for so many inputs, or seconds; 0: no such limit.  Raises `FuzzError`."""
    if importlib.util.find_spec("atheris") is None:
        raise FuzzError("atheris is not installed: pip install 'mslaunch[fuzz]', with a Python that it has wheels for")
    kept = FINDINGS / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mslaunch-fuzz-") as folder:
        begin = Path(folder, "seeds")
        begin.mkdir()
        for number, seed in enumerate(seeds_of(name)):
            (begin / f"seed-{number}").write_bytes(seed)
        grown = Path(corpus, name) if corpus else Path(folder, "grown")
        grown.mkdir(parents=True, exist_ok=True)
        words = [f"-artifact_prefix={kept}/", f"-max_len={_LARGEST}", f"-timeout={_HANGS}", "-rss_limit_mb=2048"]
        words += [f"-runs={inputs}"] * bool(inputs) + [f"-max_total_time={seconds}"] * bool(seconds)
        words += ["-print_final_stats=1", str(grown), str(begin)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}"}
        began = time.monotonic()
        line = [sys.executable, "-m", "fuzz_lib.worker", name, *words]
        done = subprocess.run(line, env=env, cwd=folder, capture_output=True, check=False)
        took = time.monotonic() - began
    said = done.stderr.decode("utf-8", "replace") + done.stdout.decode("utf-8", "replace")
    counted = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said)
    if not counted:
        raise FuzzError(f"{name} did not run:\n{_end(said)}")
    path = re.findall(r"Test unit written to (\S+)", said)
    text = f"{path[0] if path else 'no input was kept'}\n{_end(said)}" if done.returncode or path else ""
    return Result(int(counted[-1]), took, int(bool(text)), text)


def _end(said: str) -> str:
    lines = [line for line in said.splitlines() if not line.startswith(("#", "stat::", "INFO"))]
    return "\n".join(lines[-_LAST:])
