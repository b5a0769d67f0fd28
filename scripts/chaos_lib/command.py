"""The command line of `scripts/chaos`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

from chaos_lib import ChaosError, cells, known_wrong, runner, table
from chaos_lib.cells import Cell
from chaos_lib.sandbox import why_none
from chaos_lib.trial import Result, Trial


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chaos",
        description="Put faults into jobs on real hosts, and look at what must be true after each.",
        epilog="A cell is WHO/WHEN/WHAT, such as agent/running/KILL.  Exit code 1: a cell is wrong or was not tried.",
    )
    parser.add_argument("cells", metavar="CELL", nargs="*", help="these cells (default: all)")
    for name, known in (("who", cells.WHO), ("when", cells.WHEN), ("what", cells.WHAT)):
        parser.add_argument(
            f"--{name}", metavar="WORDS", default="", help=f"only these, with commas: {', '.join(known)}"
        )
    parser.add_argument("--sample", metavar="N", type=int, help="only N of them, drawn by --seed")
    parser.add_argument("--seed", metavar="TEXT", default=datetime.date.today().isoformat(), help="default: the date")
    parser.add_argument("--short", action="store_true", help="without those that have to wait for 10 s and more")
    parser.add_argument("--known", action="store_true", help="without those that are known to be wrong")
    parser.add_argument("--seconds", metavar="S", type=float, help="begin no cell after so many seconds")
    parser.add_argument("--jobs", metavar="N", type=int, default=3, help="cells at the same time (default: 3)")
    parser.add_argument(
        "--tries", metavar="N", type=int, default=2, help="a wrong cell is tried again, alone (default: 2)"
    )
    parser.add_argument("--record", metavar="FILE", help="add each result to FILE, and do not try again what is in it")
    parser.add_argument("--again", action="store_true", help="with --record: try again what was wrong in it")
    parser.add_argument("--list", action="store_true", help="print the cells, and try none")
    parser.add_argument("--keep", action="store_true", help="keep the files of each cell, and print all that it said")
    parser.add_argument("--write", metavar="PAGE", help="write the table of --record into this page, and try nothing")
    parser.add_argument("--mindspore", metavar="PYTHON", help="a Python with MindSpore: the real scheduler takes part")
    parser.add_argument("--one", metavar="CELL", help=argparse.SUPPRESS)
    return parser


def main(words: list[str]) -> int:
    """See `make_parser`."""
    parser = make_parser()
    given = parser.parse_args(words)
    if given.mindspore:
        os.environ["CHAOS_MINDSPORE_PYTHON"] = os.path.abspath(given.mindspore)
    try:
        if given.one:
            return _one(Cell.parse(given.one), given.keep)
        wanted = _wanted(given)
    except ValueError as error:
        parser.error(str(error))
    if given.write:
        if not given.record:
            parser.error("--write needs the --record of a run")
        try:
            table.write(Path(given.write), runner.read_record(Path(given.record)))
        except (ChaosError, OSError) as error:
            parser.error(str(error))
        return 0
    if given.list:
        print("\n".join(map(str, wanted)))
        return 0
    if reason := why_none():
        parser.error(reason)
    options = runner.Options(
        given.jobs, given.tries, Path(given.record) if given.record else None, given.again, given.keep, given.seconds
    )
    results = runner.run(wanted, options)
    return runner.summary(results, wanted)


def _wanted(given: argparse.Namespace) -> list[Cell]:
    named = [Cell.parse(text) for text in given.cells]
    axes = [_words(getattr(given, name), known) for name, known in _axes()]
    wanted = cells.chosen(*axes, cells=named)
    if given.short:
        wanted = [cell for cell in wanted if not cells.is_long(cell)]
    if given.known:
        wanted = [cell for cell in wanted if not known_wrong.why(cell)]
    return cells.sample(wanted, given.sample, given.seed) if given.sample else wanted


def _axes() -> tuple[tuple[str, dict[str, str]], ...]:
    return ("who", cells.WHO), ("when", cells.WHEN), ("what", cells.WHAT)


def _words(text: str, known: dict[str, str]) -> list[str]:
    words = [word for word in text.split(",") if word]
    for word in words:
        if word not in known:
            raise ValueError(f"{word!r} is none of {', '.join(known)}")
    return words


def _one(cell: Cell, keep: bool) -> int:
    """In a process of its own; the result is the last line."""
    folder = Path(tempfile.mkdtemp(prefix="mslaunch-chaos-"))
    result: Result = Trial(cell, folder / "c").run(keep)
    if not keep:
        folder.rmdir()
    print(json.dumps(result._asdict()))
    sys.stdout.flush()
    return 1 if result.wrong or result.error else 0
