"""The parser of command lines: options as rows of a table, the settings that they make, and the request from them.

A row says how an option is spelled, which reader makes its value of its words, and which field of the request it sets.
A field is a path: "policy.map_by" or "timeout" of the request, "app.np" of the application context at hand, "own.total"
of the record in which a dialect keeps what it evaluates itself.  A final "+" says that values are joined, not replaced.
A row without a field has a reader that returns (path, value) pairs.  Rare rows may lie in a module of their own, which
`Index` imports when a name is not among the first ones.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import Expected
from mslaunch.datamodel.request import (
    AppContext,
    DevicePolicy,
    HangPolicy,
    LinkPolicy,
    MonitorPolicy,
    OutputPolicy,
    Policy,
    Request,
    ServicePolicy,
)
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, NoReturn

    Reader = Callable[..., Any]  # words -> value; raises Expected

DONE = "done"
PASSED = "passed on"
REFUSED = "refused"
POD_VARIABLES = ("MS_ROLE", "MINDX_TASK_ID")  #: each pod of which `cli.pods` knows has one of them
#: fields that may contradict each other (`cli.parser.conflicting_options.recovering`)
RECOVERY = {
    "restart",
    "restart_delay",
    "max_restart_delay",
    "min_ranks",
    "progress_file",
    "max_no_progress",
    "device_wait",
}
#: fields whose options may have no effect (`cli.parser.idle_options.idle`)
_DEPENDENT = {
    "json", "health_timeout", "stacks_on", "stack_traces", "state_on_timeout", "detach", "ready_timeout",
}  # fmt: skip
_SHORT = 90  # a help text of at most so many letters is repeated in a refusal
_SHORTEST_LEASE = 0.5  # seconds
#: hyphen, non-breaking hyphen, figure dash, en dash, em dash, bar, minus: what typesetting makes of two dashes
_LONG_DASHES = tuple("\u2010\u2011\u2012\u2013\u2014\u2015\u2212")


class Show(Exception):  # noqa: N818 - no error: the command was asked to print something and end
    """Print `text` and exit with `code`."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class HelpRequested(Exception):  # noqa: N818 - no error
    """--help was given, with a topic or without one, which is ""."""

    def __init__(self, topic: str = "") -> None:
        super().__init__(topic)
        self.topic = topic


class VersionRequested(Exception):  # noqa: N818 - no error
    """--version was given."""


class UnknownOptionError(UsageError):
    """`written` is no option of `index`; `bare` is its name without dashes."""

    def __init__(self, written: str, bare: str, index: Index) -> None:
        super().__init__("mslaunch has no such option", written, "--help all lists them all")
        self.written = written
        self.bare = bare
        self.index = index


class Option(NamedTuple):
    """One row of a dialect's table.  A name takes one dash or two.

    `help` of a refused option is "why; what to use instead".
    """

    names: tuple[str, ...]  # without dashes; the first one is the one to learn
    metavar: str  # one word for each value, "" for a flag; one in brackets may be left out
    help: str
    group: str
    field: str = ""  # path; "": `read` returns (path, value) pairs
    read: Reader = tuple  # makes the value of the words
    default: str = ""  # as help shows it
    status: str = DONE
    once: bool = False  # a second one is an error; else the last one counts


class Variable(NamedTuple):
    """A variable of the environment, or a parameter, that sets a field as an option does."""

    name: str
    field: str
    read: Reader
    help: str


class Setting(NamedTuple):
    """One value, and where it comes from."""

    value: Any
    source: str = ""  # the option as it was written, or the variable, or file:line
    program: int = 0  # the number of the program that the option stands before


class Settings(dict):  # type: ignore[type-arg]  # a subscript would run at import
    """The settings of one or several sources: path -> list of `Setting`, weakest first."""

    def over(self, weaker: Settings) -> Settings:
        """These settings on top of weaker ones."""
        return Settings({path: [*weaker.get(path, ()), *self.get(path, ())] for path in (*weaker, *self)})

    def last(self, path: str, default: Any = None) -> Any:
        """The value that counts."""
        found = self.get(path)
        return found[-1].value if found else default

    def records(self) -> dict[str, dict[str, Any]]:
        """Record ("" is the request itself) -> field -> value."""
        made: dict[str, dict[str, Any]] = {"": {}}
        for path, found in self.items():
            record, _, field = path.rpartition(".")
            values = [setting.value for setting in found]
            value = sum(values, ()) if field.endswith("+") else values[-1]
            made.setdefault(record, {})[field.rstrip("+")] = value
        return made


class Program(NamedTuple):
    """One executable: its command line, and the settings of its application context."""

    argv: tuple[str, ...]
    settings: Settings


class ParsedLine:
    """What one source sets: a command line, the environment, or a file."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = (), source: str = "") -> None:
        self.job = Settings()
        self.shared = Settings()  # of every application context
        self.programs: list[Program] = []
        self.part = 0  # the number of the program whose options are being read
        self.put(pairs, source)

    def put(self, pairs: Iterable[tuple[str, Any]], source: str = "", app: Settings | None = None) -> None:
        """Append (path, value) pairs, stronger than those before; `app` takes those of one application context."""
        for path, value in pairs:
            settings = self.job if not path.startswith("app.") else self.shared if app is None else app
            settings.setdefault(path, []).append(Setting(value, source, self.part))

    def over(self, weaker: ParsedLine) -> ParsedLine:
        """This source on top of a weaker one, with the programs of this one."""
        line = ParsedLine()
        line.job, line.shared = self.job.over(weaker.job), self.shared.over(weaker.shared)
        line.programs = self.programs
        return line

    def sets(self, path: str) -> bool:
        """Whether any program has a setting of this path."""
        return any(path in settings for settings in (self.job, self.shared, *(one.settings for one in self.programs)))


class Index(dict):  # type: ignore[type-arg]  # a subscript would run at import
    """A table by name; `more` returns the rare rows, and is called when a name is not among the others."""

    __slots__ = ("_more",)

    def __init__(self, table: Iterable[Option], more: Callable[[], Iterable[Option]] = tuple) -> None:
        super().__init__(by_name(table))
        self._more: Callable[[], Iterable[Option]] | None = more

    def get(self, name: Any, default: Any = None) -> Any:
        """The option of this name, or `default`."""
        if self._more and not dict.__contains__(self, name):
            self.update(by_name(self._more()))
            self._more = None
        return dict.get(self, name, default)

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    def abbreviated(self, _written: str, _bare: str) -> Option | None:
        """The option that a word abbreviates, if the dialect allows that."""
        return None


def show_help(topic: str = "") -> NoReturn:
    """The reader of --help."""
    raise HelpRequested(topic)


def show_version() -> NoReturn:
    """The reader of --version."""
    raise VersionRequested


def spelled(name: str) -> str:
    """A name as it is shown: `-n`, `--np`."""
    return "-" + name if len(name) == 1 else "--" + name


def by_name(table: Iterable[Option]) -> dict[str, Option]:
    """The table, by any name without its dashes."""
    return {name: option for option in table for name in option.names}


def split_at_colons(words: Iterable[str]) -> list[list[str]]:
    """The words of each program; empty parts are dropped, as by mpirun."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            found.append([])
        else:
            found[-1].append(word)
    return [part for part in found if part]


def parse_line(index: Index, parts: Iterable[Sequence[str]]) -> ParsedLine:
    """The options and programs of a command line, given as the words of each program."""
    line = ParsedLine()
    for words in parts:
        scan(index, words, line)
    return line


def require_programs(programs: Sequence[Program], colons: bool) -> None:
    """Raises `UsageError` unless there are programs, all with a command; `colons`: the line had a lone ':'."""
    if programs and all(program.argv for program in programs):
        return
    todo = "write it after the options, for example: mslaunch -n 4 python train.py"
    hint = "\na lone ':' begins another program; inside arguments, hide it: sh -c 'awk -F : …'"
    raise UsageError("no program was given", "", todo + hint * colons)


def scan(index: Index, words: Sequence[str], line: ParsedLine) -> None:
    """Read options up to the first word that is none, or `--`; the rest is the program, which is added to `line`."""
    settings = Settings()
    seen: set[str] = set()
    pending = list(reversed(words))
    while pending and pending[-1].startswith("-"):
        word = pending.pop()
        if word == "--":
            break
        if _is_bundle(index, word):
            pending += ["-" + letter for letter in reversed(word[1:])]
            continue
        option, name, value = _option(index, word)
        if option.once and option.names[0] in seen:
            raise UsageError("it was given twice", name, "give it once for each program")
        seen.add(option.names[0])
        values = _values(index, option, name, value, pending)
        line.put(read_words(name, option.field, option.read, *values), name, settings)
    else:
        if pending and pending[-1].startswith(_LONG_DASHES):
            word = pending[-1]
            what = f"it begins with {word[0]!r}, which looks like '-' and is not"
            raise UsageError(what, word, f"write {spelled(word.lstrip(''.join(_LONG_DASHES)))}")
    line.programs.append(Program(tuple(reversed(pending)), settings))
    line.part += 1


def read_words(where: str, path: str, read: Reader, *words: str) -> list[tuple[str, Any]]:
    """What `words` set; `where` names the option or variable they came from.  Raises `UsageError`."""
    try:
        value = read(*words)
    except Expected as error:
        raise UsageError(f"expected {error.what}, got {' '.join(words)!r}", where, error.todo) from None
    return [(path, value)] if path else list(value)


def from_environ(rows: Iterable[Variable], environ: Mapping[str, str]) -> ParsedLine:
    """What variables set; an empty one counts as absent."""
    line = ParsedLine()
    for row in rows:
        if environ.get(row.name):
            line.put(read_words(row.name, row.field, row.read, environ[row.name]), row.name)
    return line


def own_fields(line: ParsedLine) -> Mapping[str, Any]:
    """The fields of the dialect's own record."""
    return line.job.records().get("own", {})


def assemble(line: ParsedLine, notes: Sequence[str] = ()) -> Request:
    """The request; the dialect's own fields are left out."""
    apps = [(argv, settings.over(line.shared).records().get("app", {})) for argv, settings in line.programs]
    records = line.job.records()
    fields = records[""]
    request = Request(
        tuple(AppContext(argv, **app) for argv, app in apps),
        Policy(**records.get("policy", {})),
        OutputPolicy(**records.get("output", {})),
        _link_policy(records.get("link", {})),
        cluster=ServicePolicy(**records.get("cluster", {})),
        devices=DevicePolicy(**records.get("devices", {})),
        monitor=MonitorPolicy(**records.get("monitor", {})),
        hang=HangPolicy(**records.get("hang", {})),
        **{**fields, "notes": (*fields.get("notes", ()), *notes)},
    )
    if _DEPENDENT.isdisjoint(fields):
        return request
    from mslaunch.cli.parser.idle_options import idle

    return request._replace(notes=(*request.notes, *idle(request, fields)))


def _link_policy(fields: Mapping[str, Any]) -> LinkPolicy:
    """Raises `UsageError` for a lease that a delayed sign of life would cost."""
    link = LinkPolicy(**fields)
    if 0 < link.lease < _SHORTEST_LEASE:
        todo = f"write --lease {_SHORTEST_LEASE:g} or more, or 0 for no lease"
        raise UsageError("a busy host may be silent for longer", f"--lease {link.lease:g}", todo)
    if link.lease and link.lease < 2 * link.pace:
        todo = f"write --lease {2 * link.pace:g} or more, or --heartbeat {link.lease / 3:.3g}"
        raise UsageError(f"it is less than two heartbeats of {link.pace:g} s", f"--lease {link.lease:g}", todo)
    return link


def read_file(read_text: Callable[[str], str], path: str, option: str) -> str:
    """The text of a file that the command line names; raises `UsageError` if it cannot be read."""
    try:
        return read_text(path)
    except FileNotFoundError:
        what, todo = f"there is no file {path}", "check the path; it counts from the directory of the launch"
    except OSError as error:
        what, todo = f"cannot read {path}: {error.strerror or error}", "name a text file that you may read"
    raise UsageError(what, option, todo)


def _bare(word: str) -> str:
    """A word without its one or two leading dashes."""
    return word[2:] if word.startswith("--") else word[1:]


def _is_bundle(index: Index, word: str) -> bool:
    """Whether the word is several one-letter flags after one dash: `-qv`."""
    letters = word[1:]
    if letters[:1] == "-" or len(letters) < 2 or letters in index:
        return False
    flags = all(option and option.metavar[:1] in ("", "[") for option in map(index.get, letters))
    return flags and all(index[letter].status != REFUSED for letter in letters)


def _option(index: Index, word: str) -> tuple[Option, str, str | None]:
    """The option that a word names, its name as written, and the value after `=` if there is one."""
    bare, equals, value = _bare(word).partition("=")
    written = word.partition("=")[0]
    option = index.get(bare) or index.abbreviated(written, bare)
    if option is None:
        raise UnknownOptionError(written, bare, index)
    if option.status == REFUSED:
        why, _, instead = option.help.partition("; ")
        raise UsageError(f"mslaunch does not have this option: {why}", written, instead)
    return option, written, value if equals else None


def _values(index: Index, option: Option, name: str, value: str | None, pending: list[str]) -> list[str]:
    """The words of the option, taken off `pending`, which is in reverse order."""
    wanted = option.metavar.split()
    if value is not None:
        if len(wanted) == 1:
            return [value]
        how = "it takes no value" if not wanted else "write its words apart, without '='"
        raise UsageError(f"{how}, got {value!r}", name, f"write {' '.join([name, *wanted])}")
    following = pending[-1] if pending else None
    if option.metavar[:1] == "[":
        last = len(pending) == 1 and _bare(pending[-1]) in index  # --help --map-by
        return [pending.pop()] if following is not None and (following[:1] != "-" or last) else []
    if wanted and (following is None or following == "--" or (following[:1] == "-" and _bare(following) in index)):
        before = "at the end of the line" if following is None else f"before {following!r}"
        meaning = f": {option.help}" if len(option.help) <= _SHORT else ""
        raise UsageError(f"{option.metavar} is missing {before}", name, f"write {name} {option.metavar}{meaning}")
    if len(wanted) > len(pending):
        raise UsageError(f"{wanted[-1]} is missing at the end of the line", name, f"write {name} {option.metavar}")
    return [pending.pop() for _ in wanted]
