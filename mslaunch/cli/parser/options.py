"""Options as a table, and the one parser that reads every dialect's table.

An `Option` says how it is spelled, how its words are read and which field of a request they fill; `scan` turns words
into settings, `assemble` turns settings into a `Request`.  Nothing here knows mpirun, hydra or msrun, and nothing
here reads a file or the environment; what is said of a word that is no option is next door, in `strangers`.  The one
surprising thing: a field is a path, "policy.map_by" or "timeout", where "app." is the application context at hand and
a final "+" says that values are joined instead of replaced; an option without a path gives a list of (path, value)
itself.  Rare options can wait in a module of their own (`Index`).
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import Expected
from mslaunch.datamodel.request import AppContext, ClusterPolicy, LinkPolicy, OutputPolicy, Policy, Request
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Reader = Callable[..., Any]  # words -> value; raises Expected
    Setting = tuple[str, Any]  # path, value

DONE = "done"
PASSED = "passed on"
REFUSED = "refused"
_SHORT = 90  # a help text up to so many letters is a part of a refusal


class Show(Exception):  # noqa: N818 - no error: the command was asked to print something and end
    """Print `text` and exit with `code`."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Option(NamedTuple):
    """One row of a dialect's table.  A name takes one dash or two.

    `help` of a refused option is "why; what to use instead".
    """

    names: tuple[str, ...]  # without dashes; the first one is the one to learn
    metavar: str  # one word for each value, "" for a flag
    help: str
    group: str
    field: str = ""  # path; "": `read` gives (path, value) pairs
    read: Reader = tuple  # what makes the value of the words
    default: str = ""  # as help shows it
    status: str = DONE
    once: bool = False  # a second one is an error; else the last one counts


class Variable(NamedTuple):
    """A variable of the environment, or a parameter, that sets a field as an option does."""

    name: str
    field: str
    read: Reader
    help: str


class Section(NamedTuple):
    """The words between two colons, understood: the settings in order, and the program with its arguments."""

    settings: tuple[Setting, ...]
    program: tuple[str, ...]
    sources: tuple[str, ...] = ()  # for each setting, the option as it was written


class Index(dict):  # type: ignore[type-arg]  # a subscript would run at import
    """A table looked up by name; the rows of `more` are fetched when a name is not among the first ones.

    So a launch with everyday options does not pay for the rare ones.
    """

    __slots__ = ("_more",)

    def __init__(self, table: Iterable[Option], more: Callable[[], Iterable[Option]] = tuple) -> None:
        super().__init__(by_name(table))
        self._more: Callable[[], Iterable[Option]] | None = more

    def all(self) -> Index:
        """The index with every row in it."""
        if self._more is not None:
            self.update(by_name(self._more()))
            self._more = None
        return self

    def get(self, name: str, default: Any = None) -> Any:
        """The option of this name, or `default`."""
        return dict.get(self, name) or dict.get(self.all(), name, default)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or dict.__contains__(self.all(), name)

    def meant(self, _written: str, _bare: str) -> Option | None:
        """The option that a word stands for which is no name of any, if the dialect has such words."""
        return None


def spelled(name: str) -> str:
    """A name as it is shown: `-n`, `--np`."""
    return "-" + name if len(name) == 1 else "--" + name


def by_name(table: Iterable[Option]) -> dict[str, Option]:
    """The table, looked up by any name without its dashes."""
    return {name: option for option in table for name in option.names}


def sections(index: Mapping[str, Option], argv: Sequence[str]) -> list[Section]:
    """The command line cut at its lone `:` words and read; sections without a word are dropped, as mpirun does.

    Raises `UsageError` for what cannot be understood and for a section that has no program.
    """
    found = cut(index, argv)
    require_programs(found, ":" in argv)
    return found


def cut(index: Mapping[str, Option], argv: Sequence[str]) -> list[Section]:
    """The same, also if there is no program."""
    return [scan(index, part) for part in parts(argv)]


def parts(words: Iterable[str]) -> list[list[str]]:
    """What lone colons part, without the empty parts."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            found.append([])
        else:
            found[-1].append(word)
    return [part for part in found if part]


def require_programs(found: Sequence[Section], colons: bool) -> None:
    """Raises `UsageError` unless each section has a program; `colons`: the command line had a lone ':'."""
    if found and all(section.program for section in found):
        return
    todo = "write it after the options, for example: mslaunch -n 4 python train.py"
    if colons:
        todo += "\na lone ':' begins another program; inside arguments, hide it: sh -c 'awk -F : …'"
    raise UsageError("no program was given", "", todo)


def scan(index: Mapping[str, Option], words: Sequence[str]) -> Section:
    """Read options up to the first word that is none, or `--`; the rest is the program, untouched."""
    settings: list[Setting] = []
    sources: list[str] = []
    seen: set[str] = set()
    pending = list(reversed(words))
    while pending and pending[-1].startswith("-"):
        word = pending.pop()
        if word == "--":
            return _section(settings, pending, sources)
        if _is_bundle(index, word):
            pending += ["-" + letter for letter in reversed(word[1:])]
            continue
        option, name, value = _option(index, word)
        if option.once and option.names[0] in seen:
            raise UsageError("it was given twice", name, "give it once for each program")
        seen.add(option.names[0])
        settings += settings_of(name, option.field, option.read, *_values(index, option, name, value, pending))
        sources += [name] * (len(settings) - len(sources))
    if pending and not pending[-1].isascii():
        from mslaunch.cli import unknown_options

        if pending[-1].startswith(unknown_options.LONG_DASHES):
            raise unknown_options.lookalike(pending[-1])
    return _section(settings, pending, sources)


def _section(settings: Sequence[Setting], pending: Sequence[str], sources: Sequence[str]) -> Section:
    return Section(tuple(settings), tuple(reversed(pending)), tuple(sources))


def kept(part: Section, wanted: Callable[[Setting, str], bool]) -> Section:
    """The section with those settings alone that are wanted, asked with the setting and its source."""
    pairs = [pair for pair in zip(part.settings, part.sources) if wanted(*pair)]
    return part._replace(settings=tuple(pair[0] for pair in pairs), sources=tuple(pair[1] for pair in pairs))


def settings_of(where: str, path: str, read: Reader, *words: str) -> list[Setting]:
    """What `words` set; `where` names the option or variable they came from.  Raises `UsageError`."""
    try:
        value = read(*words)
    except Expected as error:
        raise UsageError(f"expected {error.what}, got {' '.join(words)!r}", where, error.todo) from None
    return [(path, value)] if path else list(value)


def settle(settings: Iterable[Setting]) -> dict[str, Any]:
    """Path -> value: the last one of each path, or all of them joined where the path ends in "+"."""
    values: dict[str, Any] = {}
    for path, value in settings:
        name = path.rstrip("+")
        values[name] = values.get(name, ()) + value if path.endswith("+") else value
    return values


def assemble(settings: Sequence[Setting], found: Sequence[Section]) -> Request:
    """The request made of all sections, on top of `settings`, which are weaker."""
    shared = [setting for setting in settings if setting[0].startswith("app.")]
    apps = [AppContext(part.program, **_room(settle([*shared, *part.settings]), "app")) for part in found]
    values = settle([*settings, *(setting for part in found for setting in part.settings)])
    return Request(
        tuple(apps),
        Policy(**_room(values, "policy")),
        OutputPolicy(**_room(values, "output")),
        LinkPolicy(**_room(values, "link")),
        cluster=ClusterPolicy(**_room(values, "cluster")),
        **{path: value for path, value in values.items() if "." not in path},
    )


def _room(values: Mapping[str, Any], room: str) -> dict[str, Any]:
    """The fields of one record of the request."""
    return {path.partition(".")[2]: value for path, value in values.items() if path.startswith(room + ".")}


def _bare(word: str) -> str:
    """A word without its one or two leading dashes."""
    return word[2:] if word.startswith("--") else word[1:]


def _is_bundle(index: Mapping[str, Option], word: str) -> bool:
    """Whether the word is several one-letter flags behind one dash: `-qv`."""
    letters = word[1:]
    if letters[:1] == "-" or len(letters) < 2 or letters in index:
        return False
    found = [index.get(letter) for letter in letters]
    return all(option is not None and not option.metavar and option.status != REFUSED for option in found)


def _option(index: Mapping[str, Option], word: str) -> tuple[Option, str, str | None]:
    """The option a word names, the name as it was written, and the value behind `=` if there is one."""
    bare, equals, value = _bare(word).partition("=")
    written = word.partition("=")[0]
    option = index.get(bare)
    if option is None and isinstance(index, Index):
        option = index.meant(written, bare)
    if option is None:
        from mslaunch.cli import unknown_options

        raise unknown_options.refusal(index, written, bare)
    if option.status == REFUSED:
        why, _, instead = option.help.partition("; ")
        raise UsageError(f"mslaunch does not have this option: {why}", written, instead)
    return option, written, value if equals else None


def _values(index: Mapping[str, Option], option: Option, name: str, value: str | None, pending: list[str]) -> list[str]:
    """The words that belong to the option, taken off `pending`, which is in reverse order."""
    wanted = option.metavar.split()
    if value is not None:
        if len(wanted) == 1:
            return [value]
        how = "it takes no value" if not wanted else "write its words apart, without '='"
        raise UsageError(f"{how}, got {value!r}", name, f"write {' '.join([name, *wanted])}")
    following = pending[-1] if pending else None
    if wanted and (following is None or following == "--" or (following[:1] == "-" and _bare(following) in index)):
        before = "at the end of the line" if following is None else f"before {following!r}"
        meaning = f": {option.help}" if len(option.help) <= _SHORT else ""
        raise UsageError(f"{option.metavar} is missing {before}", name, f"write {name} {option.metavar}{meaning}")
    if len(wanted) > len(pending):
        raise UsageError(f"{wanted[-1]} is missing at the end of the line", name, f"write {name} {option.metavar}")
    return [pending.pop() for _ in wanted]
