"""The words of a hydra command line: of each program, of the file of -configfile, and of HYDRA_CONFIG_FILE.

-configfile names a file whose lines are programs, with their options; HYDRA_CONFIG_FILE one that holds options alone.
"""

from __future__ import annotations

from mslaunch.cli.parser import options
from mslaunch.cli.parser.options import ParsedLine
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.cli.parser.dialect_contract import ReadText
    from mslaunch.cli.parser.options import Index

_PAIRS = ("env", "genv")


def shared_options(index: Index, environ: Mapping[str, str], read_text: ReadText) -> ParsedLine:
    """Options in the file that HYDRA_CONFIG_FILE names; as with hydra, a missing file is no error."""
    path = environ.get("HYDRA_CONFIG_FILE")
    try:
        words = read_text(path).split() if path else []
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ParsedLine()
    except OSError as error:
        todo = "name a text file, or unset it"
        raise UsageError(f"it cannot be read: {error.strerror}", f"HYDRA_CONFIG_FILE={path}", todo) from None
    line = options.parse_line(index, [_plain_words(index, words)[0]])
    (program,) = line.programs
    if program.argv:
        raise UsageError(f"{program.argv[0]!r} is no option", f"HYDRA_CONFIG_FILE={path}", "write options only")
    line.shared = program.settings
    return line


def programs_of(index: Index, argv: Sequence[str], read_text: ReadText) -> list[list[str]]:
    """The words of each program, in one form: those between lone colons, and the lines of the file of -configfile."""
    programs: list[list[str]] = []
    for words in options.split_at_colons(argv):
        plain, path = _plain_words(index, words)
        if path == "":
            raise UsageError("FILE is missing", "-configfile", "write -configfile FILE, at the end of the line")
        of_file = [_plain_words(index, line) for line in (_lines(path, read_text) if path else ())]
        if any(nested is not None for _, nested in of_file):
            raise UsageError(f"{path} names another such file", "-configfile", "write all programs into one file")
        first, *others = [line for line, _ in of_file] or [[]]
        programs += [plain + first, *others]
    return programs


def _lines(path: str, read_text: ReadText) -> list[list[str]]:
    """The programs of a -configfile: one a line, or with colons between; no quotes, `\\` continues a line."""
    text = options.read_file(read_text, path, "-configfile").replace("\\\n", " ")
    lines = (line.split() for line in text.splitlines() if line.lstrip()[:1] != "#")
    return [part for words in lines for part in options.split_at_colons(words)]


def _plain_words(index: Index, words: Sequence[str]) -> tuple[list[str], str | None]:
    """The words, with options in lower case and `-env A=b` as `-env A b`; and the file that -configfile names.

    `-env A=b` is one word and `-env A b` two, so both are brought into one form before the table is used.  The program
    is left as it is.  Raises `UsageError` for words after that file.
    """
    pending = list(reversed(words))
    plain: list[str] = []
    while pending and pending[-1][:1] == "-" and pending[-1] != "--":
        word, equals, value = pending.pop().partition("=")
        name = bare_name(word)
        option = index.get(name)
        if name == "configfile":
            path = value if equals else pending.pop() if pending else ""
            if pending:
                todo = "the programs are in the file: write it last"
                raise UsageError(f"{pending[-1]!r} stands after its file", word, todo)
            return plain, path
        plain.append(word[: len(word) - len(name)] + name)
        if option is None or (equals and name not in _PAIRS):
            plain[-1] += equals + value
        else:
            plain += _following(name, len(option.metavar.split()), [value] if equals else [], pending)
        if option is None:
            break
    return plain + pending[::-1], None


def _following(name: str, wanted: int, given: list[str], pending: list[str]) -> list[str]:
    """The words of an option, those `given` after its `=` and others, which are taken off `pending`."""
    if name in _PAIRS:
        first, equals, second = (given or [pending.pop() if pending else ""])[0].partition("=")
        given = [first, second] if equals else [first]
    return [*given, *(pending.pop() for _ in range(min(wanted - len(given), len(pending))))]


def bare_name(word: str) -> str:
    """`--Hosts` is `hosts`; "" for a word that is no option."""
    return (word[2:] if word[:2] == "--" else word[1:]).lower() if word[:1] == "-" else ""
