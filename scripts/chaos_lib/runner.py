"""Tries many cells, some at the same time, and keeps a record of the results, by which a run can be continued."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from chaos_lib.cells import Cell
from chaos_lib.sandbox import PYTHON, ROOT

LONGEST = 240.0  #: seconds for one cell
LINES = 12  #: of what a launch has said are shown


class Options(NamedTuple):
    """Of a run."""

    jobs: int = 3
    tries: int = 2
    record: Path | None = None
    again: bool = False
    keep: bool = False
    seconds: float | None = None


def run(cells: Sequence[Cell], options: Options) -> list[dict[str, Any]]:
    """Try all of them; the results, also those that a record had already."""
    began = time.monotonic()
    known = read_record(options.record) if options.record else {}
    done = [known[str(cell)] for cell in cells if str(cell) in known and not (options.again and _bad(known[str(cell)]))]
    names = {result["cell"] for result in done}
    waiting = [cell for cell in cells if str(cell) not in names]
    second: list[Cell] = []
    for result, cell in _many(waiting, options, began):
        if _bad(result) and options.tries > 1:
            second.append(cell)
            print(f"  again later: {cell}", flush=True)
        else:
            done.append(_keep(result, options))
    for cell in second:  # alone, so that a busy machine is no reason
        for number in range(2, options.tries + 1):
            result = {**_one(cell, options), "tries": number}
            _show(result)
            if not _bad(result):
                break
        done.append(_keep(result, options))
    return done


def _many(cells: Sequence[Cell], options: Options, began: float) -> Any:
    with ThreadPoolExecutor(options.jobs) as pool:
        running: dict[Future[dict[str, Any]], Cell] = {}
        left = list(cells)
        while left or running:
            late = options.seconds is not None and time.monotonic() - began > options.seconds
            if late:
                left = []
            while left and len(running) < options.jobs:
                cell = left.pop(0)
                running[pool.submit(_one, cell, options)] = cell
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                result = future.result()
                _show(result)
                yield result, running.pop(future)


def _one(cell: Cell, options: Options) -> dict[str, Any]:
    began = time.time()
    command = [PYTHON, str(ROOT / "scripts" / "chaos"), "--one", str(cell), *(["--keep"] if options.keep else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"cell": str(cell), "wrong": [], "error": f"it was not done after {LONGEST:g} s"}
    *words, last = out.splitlines() or [""]
    if options.keep:
        print("\n".join(words))
    try:
        result: dict[str, Any] = json.loads(last)
    except ValueError:
        result = {"cell": str(cell), "wrong": [], "error": f"it broke: {err[-2000:]}"}
    return {**result, "date": began, "took": time.time() - began, "commit": commit()}


def _bad(result: dict[str, Any]) -> bool:
    return bool(result["wrong"] or result["error"])


def _keep(result: dict[str, Any], options: Options) -> dict[str, Any]:
    if options.record:
        with open(options.record, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    return result


def _show(result: dict[str, Any]) -> None:
    took = f"{result.get('seconds', 0):5.1f} s"
    word = "ERROR" if result["error"] else "WRONG" if result["wrong"] else "right"
    print(f"{word} {result['cell']:32} {took}  code {result.get('code')}", flush=True)
    for text in [*result["wrong"], *result["error"].splitlines()[-LINES:]]:
        print(f"        {text}", flush=True)
    if word != "right":
        print("".join(f"      | {line}\n" for line in result.get("said", "").splitlines()[-LINES:]), end="", flush=True)


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """The last result of each cell."""
    if not path.exists():
        return {}
    results = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {result["cell"]: result for result in results}


def summary(results: Sequence[dict[str, Any]], wanted: Sequence[Cell]) -> int:
    """Print it; the exit code."""
    bad = [result["cell"] for result in results if _bad(result)]
    print(
        f"{len(results) - len(bad)} of {len(results)} cells are right"
        + (f", {len(wanted) - len(results)} were not tried" if len(wanted) > len(results) else "")
    )
    for cell in bad:
        print(f"  wrong: scripts/chaos {cell} --keep")
    return 1 if bad else 0


def commit() -> str:
    """Of this checkout."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
