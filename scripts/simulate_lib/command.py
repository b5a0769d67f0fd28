"""The command line of `scripts/simulate`: each run in a process of its own, then the table and the judgement."""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from simulate_lib import SimulateError, growth, table  # noqa: E402
from simulate_lib.measure import Step  # noqa: E402

SIZES = (10, 100, 1_000, 10_000, 100_000)
NAMES = ("plan", "launch", "late", "dies", "bad-line", "silent", "refusing")
PLAN_SECONDS, PLAN_BYTES = 20.0, 4 << 30  #: for 100,000 hosts with eight ranks each
_PAGE, _PLOT = ROOT / "docs" / "performance.md", ROOT / "docs" / "scale.svg"
_LIMIT = 3600.0  # seconds for one run


def main(words: Sequence[str]) -> int:
    """The exit code: 1 if a step grows too fast or planning takes too much, 2 if a run could not be made."""
    given = _parser().parse_args(words)
    if given.one:
        return _one(given.one, given.sizes[0])
    steps = _read(given.results)
    failed = False
    for nodes in () if given.again else given.sizes or SIZES:
        for name in given.only or NAMES:
            try:
                made = _run(name, nodes)
            except SimulateError as error:
                print(f"{name}, {nodes} hosts: {error}", file=sys.stderr)
                failed = True
                continue
            steps = [step for step in steps if (step.name, step.nodes) not in {(one.name, one.nodes) for one in made}]
            steps += made
            _show(made)
            if given.results:
                Path(given.results).write_text(json.dumps(steps), encoding="utf-8")
    notes = _judge(steps)
    if given.write:
        from simulate_lib.plot import plot

        table.write(_PAGE, steps, [*notes, _summary(steps, notes)])
        plot(_PLOT, steps)
    for note in notes:
        print(note)
    print(_summary(steps, notes))
    return 2 if failed else int(bool(notes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="The launcher against hosts that are played.")
    parser.add_argument("sizes", nargs="*", type=int, metavar="N", help=f"numbers of hosts; default {SIZES}")
    parser.add_argument("--only", action="append", choices=NAMES, help="this run; may be given several times")
    parser.add_argument("--results", metavar="FILE", help="keep results there as JSON, and go on from those")
    parser.add_argument("--again", action="store_true", help="run nothing: judge and write the results of FILE")
    parser.add_argument(
        "--write", action="store_true", help="write docs/scale.svg and the table of docs/performance.md"
    )
    parser.add_argument("--one", choices=NAMES, help=argparse.SUPPRESS)  # in the process of a run
    return parser


def _read(path: str | None) -> list[Step]:
    if not path or not os.path.exists(path):
        return []
    return [Step(*row) for row in json.loads(Path(path).read_text(encoding="utf-8"))]


def _run(name: str, nodes: int) -> list[Step]:
    """One run in a new process, in a directory of its own."""
    script = ROOT / "scripts" / "simulate"
    with tempfile.TemporaryDirectory(prefix="mslaunch-simulate-") as place:
        words = [sys.executable, str(script), "--one", name, str(nodes)]
        try:
            done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise SimulateError(f"not over after {_LIMIT:g} seconds") from None
    if done.returncode:
        raise SimulateError("\n".join(done.stderr.splitlines()[-8:]) or f"ended with {done.returncode}")
    return [Step(*row) for row in json.loads(done.stdout)]


def _one(name: str, nodes: int) -> int:
    gc.disable()  # as the command does, until it launches
    from simulate_lib.runs import RUNS

    try:
        steps = RUNS[name](nodes)
    except SimulateError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(steps))
    return 0


def _show(steps: Sequence[Step]) -> None:
    for step in steps:
        each = f"{step.cpu / step.nodes * 1e6:9,.0f} µs {step.grown / step.nodes:9,.0f} bytes a host"
        print(f"{step.nodes:7,} {step.name:44} {step.seconds:8.3f} s, CPU {step.cpu:8.3f} s {each}  {step.note}")
    sys.stdout.flush()


def _judge(steps: Sequence[Step]) -> list[str]:
    """What is not as it should be."""
    notes = [f"GROWS TOO FAST: {found}" for found in growth.too_fast(steps)]
    for step in steps:
        if step.name == "all of the plan" and step.nodes >= SIZES[-1]:
            if step.cpu > PLAN_SECONDS:  # one process, so that other work on the machine does not count
                cpu = f"{step.cpu:.0f} s of CPU time ({step.seconds:.0f} s passed)"
                notes.append(f"TOO SLOW: {step.nodes:,} hosts are planned in {cpu}, not {PLAN_SECONDS:g} s")
            if step.grown > PLAN_BYTES:
                notes.append(f"TOO LARGE: planning {step.nodes:,} hosts takes {step.grown >> 20} MiB")
    return notes


def _summary(steps: Sequence[Step], notes: Sequence[str]) -> str:
    if len({step.nodes for step in steps}) < 2:
        return "Growth was not judged: that takes two numbers of hosts."
    fast = [note for note in notes if note.startswith("GROWS")]
    return f"{len(fast)} steps grow faster than N log N." if fast else "No step grows faster than N log N."
