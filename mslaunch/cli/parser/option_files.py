"""Files that hold words of a command line: mca-params.conf, files of --tune and -am, and those of --app.

Pure: their text comes in, what it says goes out.  mca-params.conf has lines `KEY = VALUE`, where a value is all that
follows, quotes and `#` included, as Open MPI reads it.  A tune file has lines of -mca and -x, or such lines as well
(5.0).  An appfile has the words of one program a line, without quotes.  The surprising thing is who forgives: a line
of mca-params.conf that means nothing is passed over and told, since the file is not of this launch alone; in the files
that the command line names it is refused.
"""

from __future__ import annotations

from mslaunch.cli.parser import options, readers
from mslaunch.cli.parser.readers import Expected
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mslaunch.cli.parser.options import Option, Section

    Variables = tuple[tuple[str, str | None], ...]

_MCA = ("-mca", "--mca", "-gmca", "--gmca", "-omca", "--omca", "-gomca", "--gomca")
_TUNE_LINE = "lines are -mca KEY VALUE, -x VAR[=VALUE] or KEY = VALUE"


def read(read_text: Callable[[str], str], path: str, option: str) -> str:
    """The text of a file that the command line names; raises `UsageError` if it cannot be read."""
    try:
        return read_text(path)
    except FileNotFoundError:
        what, todo = f"there is no file {path}", "check the path; it counts from the directory of the launch"
    except OSError as error:
        what, todo = f"cannot read {path}: {error.strerror or error}", "name a text file that you may read"
    raise UsageError(what, option, todo)


def parameters(text: str, path: str, notes: list[str]) -> dict[str, tuple[str, str]]:
    """KEY -> (VALUE, file:line) of an mca-params.conf, where the last one counts; `notes` gets what means nothing."""
    found: dict[str, tuple[str, str]] = {}
    for where, line in _lines(text, path):
        key, equals, value = _pair(line)
        if equals:
            found[key] = (value, f"{where}: {key}")
        else:
            notes.append(f"{where}: passed over, since it is not KEY = VALUE: {line!r}")
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
                    what = f"a word is missing behind {word}" if known else f"cannot read {word!r}"
                    raise UsageError(what, where, _TUNE_LINE)
        except Expected as error:
            raise UsageError(f"expected {error.what}, got {line!r}", where, error.todo or _TUNE_LINE) from None
    return found, tuple(given)


def programs(index: Mapping[str, Option], text: str, path: str) -> list[Section]:
    """The programs of an appfile, in order.

    As in mpirun 4.1.4: no quotes, `:` has no meaning, `#` and `//` begin a comment; but only at the beginning of a
    word, so that http://host/ is none.  Raises `UsageError` with file:line.
    """
    found = []
    for where, line in _lines(text, path):
        words = line.split()
        end = next((at for at, word in enumerate(words) if word.startswith(("#", "//"))), len(words))
        if not end:
            continue
        try:
            section = options.scan(index, words[:end])
        except UsageError as error:
            raise UsageError(error.what, f"{where}: {error.where}" if error.where else where, error.todo) from None
        if any(setting == "appfile" for setting, _ in section.settings):
            raise UsageError("an appfile cannot name another", where, "write its programs here")
        if not section.program:
            raise UsageError("no program was given", where, "write it after the options: -np 4 ./solve")
        found.append(section)
    if not found:
        raise UsageError("it has no program", path, "write one a line: -np 4 ./solve")
    return found


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
