"""--report: reads the record of a run and writes the page that shows it.

The record may be anybody's, the page is written as all files that the user names: never through a link.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from mslaunch.cli.parser.options import Show
from mslaunch.errors import LaunchError, UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, TypeVar

    _T = TypeVar("_T")

    from mslaunch.reports.recorded_run import RecordedRun

RECORD = "run.json"
_OPTION = "--report"
_USE = "write --report run.json, or --report run.json -o page.html"


def report(words: Sequence[str]) -> Show:
    """Write the page; what is shown is its name, or with `-o -` the page itself.  Raises `LaunchError` and OSError."""
    path, target = _paths(words)
    run = _read(path)
    from mslaunch.reports import page

    text = page.render(run)
    if target == "-":
        return Show(text)
    _write(path, target, text.encode("utf-8"))
    return Show(f"{target}: open it in a browser")


def _paths(words: Sequence[str]) -> tuple[str, str]:
    """The record and the page, of `FILE`, `FILE -o PAGE` or `-o PAGE FILE`."""
    left = []
    target = ""
    rest = iter(words)
    for word in rest:
        if word in ("-o", "--output"):
            target = next(rest, "")
            if not target:
                raise UsageError("the name of the page is missing", "-o", _USE)
        elif word.startswith("--output="):
            target = word.partition("=")[2]
        elif word.startswith("-") and word != "-":
            raise UsageError(f"unknown option {word!r}; only -o PAGE is known", _OPTION, _USE)
        else:
            left.append(word)
    if not left or not left[0]:
        raise UsageError("the name of the record is missing", _OPTION, _USE)
    if len(left) > 1:
        raise UsageError(f"it takes one record, got {' '.join(left)!r}", _OPTION, _USE)
    path = os.path.join(left[0], RECORD) if os.path.isdir(left[0]) else left[0]
    return path, target or _beside(path)


def _beside(path: str) -> str:
    """run.html for run.json."""
    base, extension = os.path.splitext(path)
    if extension.lower() != ".json":
        if not os.path.exists(path):
            raise LaunchError("there is no such file", path, "name a run.json, or a directory that has one")
        raise UsageError(f"{path!r} does not end with .json, so the page has no name", _OPTION, "name it with -o PAGE")
    return base + ".html"


def _bytes(path: str, check: Callable[[os.stat_result], None] | None) -> bytes:
    from mslaunch.host.files import read_bytes
    from mslaunch.reports.read_record import MOST_BYTES

    try:
        return read_bytes(path, check=check, most=MOST_BYTES)
    except OSError as error:
        todo = "docs/report.md says where a launch writes it"
        raise LaunchError(f"cannot be read: {error.strerror or error}", path, todo) from None


def record_fields(path: str, check: Callable[[os.stat_result], None] | None) -> Any:
    """What JSON a record has; `check` may refuse the file that was opened.  Raises `LaunchError`."""
    from mslaunch.reports.read_record import decoded

    return _of_file(path, decoded, check)


def _read(path: str) -> RecordedRun:
    from mslaunch.reports.read_record import read_record

    return _of_file(path, read_record)


def _of_file(path: str, understand: Callable[[bytes], _T], check: Callable[[os.stat_result], None] | None = None) -> _T:
    try:
        return understand(_bytes(path, check))
    except LaunchError as error:
        raise LaunchError(error.what, path, error.todo, error.code) from None


def _write(record: str, target: str, data: bytes) -> None:
    from mslaunch.launcher.stdio.own_files import create_own

    try:
        if os.path.exists(target) and os.path.samefile(record, target):
            raise LaunchError("it is the record itself, and would be overwritten", target, "name another file with -o")
        with os.fdopen(create_own(target), "wb") as file:
            file.write(data)
    except OSError as error:
        raise LaunchError(
            f"cannot be written: {error.strerror or error}", target, "name another file with -o"
        ) from None
