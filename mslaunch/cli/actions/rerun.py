"""--rerun: the command line of a run that is on record (`run.json`), to be run once more where it was run.

The record has no values of variables.  Those that the command line set are taken from the environment: where a word is
`NAME=…`, and where one has `…(NAME)`.

A record is a program: --rerun takes only one that nobody else can have written, as ssh takes its configuration
(ssh_config(5), FILES), and shows the line before it runs.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError, UsageError, printable
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.request import Request

OPTION = "--rerun"
UNTRUSTED = "--rerun-untrusted"  #: the same for any record
_BLANK = "…"  # in place of a value, see `job_commands.recorded`
_LISTS = ("mca_base_env_list", "OMPI_MCA_mca_base_env_list")


class RecordedLine(NamedTuple):
    """A command line that is to be run once more."""

    words: list[str]  # after the command's name
    called: str  # that name
    shown: str  # the line for the user, without values of variables


def command_line(
    option: str, words: Sequence[str], environ: Mapping[str, str], parse: Callable[[Sequence[str], str], Request]
) -> RecordedLine:
    """The line that `option` runs; the current directory becomes that of the run.

    `words`: the file, and options that are added before those on record; `parse` makes requests of such lines.  Raises
    `LaunchError`, also for what is more than options: the programs are those on record.
    """
    if not words:
        raise UsageError("the record is missing", option, f"write {option} run.json")
    record = _record(option, words[0])
    name, *typed = record["command"]
    recorded = [_word(typed, at, environ) for at in range(len(typed))]
    try:
        os.chdir(record["cwd"])
    except OSError as error:
        place = printable(record["cwd"]).replace("\n", "?")
        what = f"{place}, where it was run, cannot be entered: {error.strerror}"
        raise LaunchError(what, f"{option} {words[0]}", "make the directory, or type the command elsewhere") from None
    if not words[1:]:
        return RecordedLine(recorded, name, _shown(name, typed, record["cwd"]))
    begun = 2 if recorded[:1] == ["--dialect"] else 1 if recorded and recorded[0].startswith("--dialect=") else 0
    line = [*recorded[:begun], *words[1:], *recorded[begun:]]
    before, after = (tuple(app.argv for app in parse(each, name).apps) for each in (recorded, line))
    if before != after:
        todo = "name the record, and options after it; the program is that of the record"
        raise UsageError(f"{' '.join(words[1:])!r} is more than options", option, todo)
    return RecordedLine(line, name, _shown(name, [*typed[:begun], *words[1:], *typed[begun:]], record["cwd"]))


def _shown(name: str, words: Sequence[str], place: str) -> str:
    """The line as one would type it, whole, since it runs next; what acts on terminals is escaped."""
    import shlex

    line, folder = _visible(" ".join(map(shlex.quote, [name, *words]))), _visible(shlex.quote(place))
    return f"runs, in {folder}:\n  {line}"


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def _record(option: str, path: str) -> dict[str, Any]:
    from mslaunch.cli.actions.report_command import record_fields

    if os.path.isdir(path):
        path = os.path.join(path, "run.json")
    where = f"{option} {path}"
    try:
        found = record_fields(path, None if option == UNTRUSTED else _require_own)
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


def _require_own(status: os.stat_result) -> None:
    """Refuse a record that somebody else could have written, or put in the place of another of our files.

    The directory may be writable by others: what they make there is theirs, and has their number as its owner.
    """
    from mslaunch.host.system_files import who_else

    if status.st_uid not in (0, os.geteuid()):
        what = f"it belongs to user {status.st_uid}, who has chosen what would run as you"
    elif who_else(status):
        what = "others can write it, and so choose what would run as you"
    elif status.st_nlink > 1:
        what = "it has more than one name, so others may have put a file of yours in its place"
    else:
        return
    raise LaunchError(what, todo=f"read its command, with --report, then run it with {UNTRUSTED}")


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
