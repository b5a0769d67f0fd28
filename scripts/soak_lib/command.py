"""The command line of `scripts/soak`."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos_lib.runner import commit
from chaos_lib.sandbox import Sandbox, why_none

from soak_lib import detached, launches, streams

KINDS = ("launches", "streams", "detached")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="soak",
        description="Much of the same, for long, on hosts of their own: nothing may grow, nothing may be lost.",
        epilog="Exit code 1: something was wrong.",
    )
    parser.add_argument("kinds", metavar="KIND", nargs="*", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("--launches", metavar="N", type=int, default=10_000, help="launches of 8 ranks (10000)")
    parser.add_argument("--minutes", metavar="M", type=float, default=60.0, help="length of the streams (default: 60)")
    parser.add_argument("--rate", metavar="BYTES", type=float, default=1e6, help="of each rank, a second (1e6)")
    parser.add_argument("--detached", metavar="N", type=int, default=1_000, help="detached jobs (default: 1000)")
    parser.add_argument("--short", action="store_true", help="60 launches, 10 s, 6 detached jobs")
    parser.add_argument("--record", metavar="FILE", help="add the figures to FILE, a line of JSON for each kind")
    return parser


def main(words: list[str]) -> int:
    """See `make_parser`."""
    parser = make_parser()
    given = parser.parse_args(words)
    kinds = given.kinds or KINDS
    for kind in kinds:
        if kind not in KINDS:
            parser.error(f"{kind!r} is none of {', '.join(KINDS)}")
    if reason := why_none():
        parser.error(reason)
    count, seconds, jobs = (60, 10.0, 6) if given.short else (given.launches, given.minutes * 60, given.detached)
    todo: dict[str, Callable[[Sandbox], dict[str, Any]]] = {
        "launches": lambda sandbox: launches.run(sandbox, count),
        "streams": lambda sandbox: streams.run(sandbox, seconds, given.rate),
        "detached": lambda sandbox: detached.run(sandbox, jobs),
    }
    results = [_one(todo[kind], given.record) for kind in kinds]
    return 1 if any(result["wrong"] for result in results) else 0


def _one(run: Callable[[Sandbox], dict[str, Any]], record: str | None) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="mslaunch-soak-"))
    sandbox = Sandbox(folder / "c")
    sandbox.up()
    try:
        result = {**run(sandbox), "commit": commit(), "date": time.strftime("%Y-%m-%d %H:%M")}
    finally:
        sandbox.down()
        folder.rmdir()
    print(json.dumps(result, indent=2), flush=True)
    if record:
        with open(record, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    return result
