"""--rerun: the command line of a run that is on record (`run.json`), to be run once more where it was run.

The record has no values of variables.  Those that the command line set are taken from the environment: where a word is
`NAME=…`, and where one has `…(NAME)`.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError, UsageError, printable
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.request import Request

OPTION = "--rerun"
_BLANK = "…"  # in place of a value, see `job_commands.recorded`
_LISTS = ("mca_base_env_list", "OMPI_MCA_mca_base_env_list")


def command_line(
    words: Sequence[str], environ: Mapping[str, str], parse: Callable[[Sequence[str], str], Request]
) -> tuple[list[str], str]:
    """The words after the command's name, and that name; the current directory becomes that of the run.

    `words`: the file, and options that are added before those on record; `parse` makes requests of such lines.  Raises
    `LaunchError`, also for what is more than options: the programs are those on record.
    """
    if not words:
        raise UsageError("the record is missing", OPTION, "write --rerun run.json")
    record = _record(words[0])
    name, *recorded = record["command"]
    recorded = [_word(recorded, at, environ) for at in range(len(recorded))]
    try:
        os.chdir(record["cwd"])
    except OSError as error:
        place = printable(record["cwd"]).replace("\n", "?")
        what = f"{place}, where it was run, cannot be entered: {error.strerror}"
        raise LaunchError(what, f"{OPTION} {words[0]}", "make the directory, or type the command elsewhere") from None
    if not words[1:]:
        return recorded, name
    begun = 2 if recorded[:1] == ["--dialect"] else 1 if recorded and recorded[0].startswith("--dialect=") else 0
    line = [*recorded[:begun], *words[1:], *recorded[begun:]]
    before, after = (tuple(app.argv for app in parse(each, name).apps) for each in (recorded, line))
    if before != after:
        todo = "name the record, and options after it; the program is that of the record"
        raise UsageError(f"{' '.join(words[1:])!r} is more than options", OPTION, todo)
    return line, name


def _record(path: str) -> dict[str, Any]:
    from mslaunch.cli.actions.report_command import record_fields

    if os.path.isdir(path):
        path = os.path.join(path, "run.json")
    where = f"{OPTION} {path}"
    try:
        found = record_fields(path)
    except LaunchError as error:
        raise LaunchError(error.what, where, error.todo) from None
    command = found.get("command") if isinstance(found, dict) else None
    if command == []:
        raise LaunchError("the run was started from Python, and has no command line", where, "run that program again")
    words = [*command, found.get("cwd")] if isinstance(command, list) and command else [None]
    if not all(map(_is_word, words)) or str(words[1]).startswith(OPTION):
        raise LaunchError("it is no record of a run", where, "name a run.json")
    if found.get("schema") != 1:
        raise LaunchError("another version of mslaunch has written it", where, "use that version")
    return dict(found)


def _is_word(value: Any) -> bool:
    """Whether a system call takes it (PEP 383)."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _word(words: Sequence[str], at: int, environ: Mapping[str, str]) -> str:
    """A word of the command line, with the values that the record does not have."""
    word = words[at]
    before, blank, _ = word.rpartition(_BLANK)
    name = words[at - 1] if word == _BLANK and at else before[:-1].rpartition(" ")[2] if before[-1:] == "=" else ""
    if not blank or not name or word[len(before) :] != _BLANK:
        return _with_values(word, environ)
    if at and words[at - 1] in _LISTS:
        what = "the record does not have all of its list of variables"
        raise LaunchError(what, OPTION, f"type the command anew, with {words[at - 1]}")
    return before + _value(name, environ)


def _with_values(word: str, environ: Mapping[str, str]) -> str:
    """A word that had values of variables in it, as in --data=…(DATA)/train."""
    first, *rest = word.split(_BLANK + "(")
    for part in rest:
        name, closed, after = part.partition(")")
        is_name = closed and name.isidentifier()
        first += _value(name, environ) + after if is_name else _BLANK + "(" + part
    return first


def _value(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        what = f"the record does not have the value of {name}"
        raise LaunchError(what, OPTION, f"set it: {name}=VALUE mslaunch --rerun …")
    return environ[name]
