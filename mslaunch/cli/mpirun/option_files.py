"""Files that hold options: mca-params.conf, files of --tune and -am, and those of --app.

mca-params.conf has lines `KEY = VALUE`, where a value is all that follows, quotes and `#` included, as Open MPI reads
it.  A tune file has lines of -mca and -x, and in 5.0 such lines as well.  An appfile has the command line of one
program a line, without quotes.  A line that cannot be read is refused in a file that the command line names, and
ignored with a note in mca-params.conf, which is not for this launch alone.
"""

from __future__ import annotations

from mslaunch.cli.parser import options, readers
from mslaunch.cli.parser.readers import Expected
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mslaunch.cli.parser.options import Index, ParsedLine

    Variables = tuple[tuple[str, str | None], ...]

_MCA = ("-mca", "--mca", "-gmca", "--gmca", "-omca", "--omca", "-gomca", "--gomca")
_SHOWN = 60  # characters
_TUNE_LINE = "lines are -mca KEY VALUE, -x VAR[=VALUE] or KEY = VALUE"


def parameters(text: str, path: str, notes: list[str]) -> dict[str, tuple[str, str]]:
    """KEY -> (VALUE, file:line) of an mca-params.conf, where the last one counts; `notes` gets ignored lines."""
    found: dict[str, tuple[str, str]] = {}
    for where, line in _lines(text, path):
        key, equals, value = _pair(line)
        if equals:
            found[key] = (value, f"{where}: {key}")
        else:
            notes.append(f"{where}: ignored, because it is not KEY = VALUE: {_shown(line)}")
    return found


def tune(text: str, path: str) -> tuple[dict[str, tuple[str, str]], Variables]:
    """(KEY -> (VALUE, file:line), variables) of a file of --tune or -am.  Raises `UsageError` with file:line."""
    found: dict[str, tuple[str, str]] = {}
    given: list[tuple[str, str | None]] = []
    for where, line in _lines(text, path):
        key, equals, value = _pair(line)
        if equals and not line.startswith("-"):
            found[key] = (value, f"{where}: {key}")
            continue
        try:
            pending = list(reversed(readers.shell_words(line)))
            while pending:
                word = pending.pop()
                if word in _MCA and len(pending) > 1:
                    name, value = readers.parameter(pending.pop(), pending.pop())
                    found[name] = (value, f"{where}: -mca {name}")
                elif word in ("-x", "--x") and pending:
                    given += readers.variable(pending.pop())
                else:
                    known = word in (*_MCA, "-x", "--x")
                    what = f"a word is missing after {word}" if known else f"cannot read {_shown(word)}"
                    raise UsageError(what, where, _TUNE_LINE)
        except Expected as error:
            raise UsageError(f"expected {error.what}, got {_shown(line)}", where, error.todo or _TUNE_LINE) from None
    return found, tuple(given)


def add_programs(index: Index, line: ParsedLine, text: str, path: str) -> None:
    """Add the programs of an appfile to `line`, in order.

    As in mpirun 4.1.4: no quotes, `:` has no meaning, `#` and `//` begin a comment; but only at the beginning of a
    word, so that http://host/ is none.  Raises `UsageError` with file:line.
    """
    files = len(line.job["own.appfile"])
    for where, written in _lines(text, path):
        words = written.split()
        end = next((at for at, word in enumerate(words) if word.startswith(("#", "//"))), len(words))
        if not end:
            continue
        try:
            options.scan(index, words[:end], line)
        except UsageError as error:
            error.where = f"{where}: {error.where}" if error.where else where
            raise
        if len(line.job["own.appfile"]) > files:
            raise UsageError("an appfile cannot name another", where, "write its programs here")
        if not line.programs[-1].argv:
            raise UsageError("no program was given", where, "write it after the options: -np 4 ./solve")
    if not line.programs:
        raise UsageError("it has no program", path, "write one a line: -np 4 ./solve")


def _lines(text: str, path: str) -> Iterator[tuple[str, str]]:
    """(file:line, line) of the lines that are neither empty nor comments."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield f"{path}:{number}", stripped


def _pair(line: str) -> Sequence[str]:
    """`KEY = VALUE` as three parts; without a key that could be one, the second is empty."""
    key, equals, value = line.partition("=")
    key = key.strip()
    if not key or any(char.isspace() for char in key):
        return line, "", ""
    return key, equals, value.strip()


def _shown(text: str) -> str:
    """A line or a word as a message shows it: cut, and without the value of a variable, which may be a secret."""
    name, equals, _ = text.partition("=")
    shown = f"{name}=…" if equals and name else text
    return repr(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…")
