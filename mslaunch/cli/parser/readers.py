"""Readers: functions from the words of an option to its value; each raises `Expected` for words that it cannot take.

A reader may set several fields; it then returns a list of (path, value), see `options`.  `placement_readers` are
those of mapping and binding, `openmpi5_readers` those of Open MPI 5.0's comma lists.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    Reader = Callable[..., Any]  # words -> value
    Pairs = list[tuple[str, Any]]  # path, value


_DIGITS = 9  # of the largest whole number that is taken


class Expected(Exception):  # noqa: N818 - the word after it completes the sentence
    """Raised by a reader for a word that it cannot take: what it expected, and what to do."""

    def __init__(self, what: str, todo: str = "") -> None:
        super().__init__(what, todo)
        self.what = what
        self.todo = todo


def on() -> bool:
    """A flag."""
    return True


def nothing(*_words: str) -> Pairs:
    """A flag without effect."""
    return []


def ignored(word: str) -> Pairs:
    """A value without effect."""
    return nothing(text(word))


def text(word: str) -> str:
    """Any word but an empty one."""
    if not word:
        raise Expected("something that is not empty")
    return word


def texts(word: str) -> tuple[str]:
    """The same, for a field that collects several."""
    return (text(word),)


def is_number(word: str) -> bool:
    """Whether it is a whole number of a sensible size, without a sign."""
    return word.isascii() and word.isdigit() and len(word) <= _DIGITS


def count(word: str) -> int:
    """A whole number from 1 to 999999999."""
    if not is_number(word) or not int(word):
        large = word.isdigit() and len(word) > _DIGITS
        raise Expected(f"a whole number of at most {_DIGITS} digits" if large else "a whole number, 1 or more")
    return int(word)


def count_or_zero(word: str) -> int:
    """A whole number, 0 or more."""
    if not is_number(word.lstrip("0") or word[-1:]):
        raise Expected("a whole number, 0 or more")
    return int(word)


def port(word: str) -> int:
    """The number of a port that other hosts can be given."""
    if not is_number(word) or not 0 < int(word) < 65536:
        raise Expected("a port from 1 to 65535")
    return int(word)


def ready_port(word: str) -> int:
    """The same, or {master_port}, which is not known yet: -1."""
    if word == "{master_port}":
        return -1
    try:
        return port(word)
    except Expected:
        raise Expected("a port from 1 to 65535, or {master_port}") from None


def number(word: str) -> float:
    """A plain decimal number, of any sign, below 1e9 in size."""
    try:
        value = float(word) if word.isascii() and "_" not in word else None
    except ValueError:
        value = None
    if value is None or not -1e9 < value < 1e9:
        raise Expected("a number of seconds", "without a unit: ten minutes are 600")
    return value


def limit(word: str) -> float | None:
    """Seconds; 0 or less means no limit, and gives None."""
    return max(number(word), 0) or None


def limit_by(source: str) -> Callable[[str], Pairs]:
    """A limit of time, with its source for the message: --timeout, or a variable."""

    def read(word: str) -> Pairs:
        seconds = limit(word)
        return [("timeout", seconds), ("timeout_from", source if seconds else "--timeout")]

    return read


def span(word: str) -> float:
    """Seconds, 0 or more."""
    if number(word) < 0:
        raise Expected("a number of seconds, 0 or more")
    return number(word)


def wait(word: str) -> float:
    """Seconds, more than 0."""
    if number(word) <= 0:
        raise Expected("a number of seconds, more than 0")
    return number(word)


def warning(word: str) -> tuple[int, float]:
    """A signal and seconds, `SIGUSR1@120`; Slurm's `USR1@120` and its 60 seconds without a number are taken as well."""
    import signal

    name, at, seconds = word.partition("@")
    upper = name.upper()
    if upper[:2] in ("B:", "R:"):
        raise Expected("SIGNAL@SECONDS", "who gets it is said by --term-to")
    known = {each.name: int(each) for each in signal.Signals}
    number = int(name) if is_number(name) else known.get(upper, known.get(f"SIG{upper}", 0))
    if not 0 < number < signal.NSIG or number in (signal.SIGKILL, signal.SIGSTOP):
        near = "" if number else _signals_like(upper, known)
        raise Expected("a signal that a program can handle, such as SIGUSR1@120", near and f"did you mean {near}?")
    return number, wait(seconds) if at else 60.0


def _signals_like(upper: str, known: Iterable[str]) -> str:
    """The signal that was meant by a name, "" if none is near; the names are short, so most letters must be right."""
    from difflib import get_close_matches

    own = upper.removeprefix("SIG")
    names = [name[3:] for name in known if name not in ("SIGKILL", "SIGSTOP")]
    return "".join(f"SIG{name}" for name in get_close_matches(own, names, 1, 0.7))


def yes_no(word: str) -> bool:
    """The words that Open MPI's boolean parameters take, and on and off; in any case."""
    lower = word.lower()
    yes = lower in {"1", "yes", "true", "t", "y", "on", "enabled"}
    if not yes and lower not in {"0", "no", "false", "f", "n", "off", "disabled"}:
        raise Expected("1 or 0")
    return yes


def choice(*known: str) -> Reader:
    """The reader of one of some words, in any case."""

    def read(word: str) -> str:
        if word.lower() not in known:
            raise Expected(one_of(known), meant(word, known))
        return word.lower()

    return read


def words_of(*known: str) -> Reader:
    """The reader of a list of some words, with commas between, in any case; each once, in the order of the table."""

    def read(text: str) -> tuple[str, ...]:
        words = text.lower().split(",")
        for word in words:
            if word not in known:
                raise Expected(f"a list of {one_of(known)}", meant(word, known))
        return tuple(word for word in known if word in words)

    return read


def ignored_choice(*known: str) -> Reader:
    """The reader of one of some words, without effect."""
    return lambda word: nothing(choice(*known)(word))


def one_of(known: Sequence[str]) -> str:
    """`a, b or c`, of at least one."""
    return ", ".join(known[:-1]) + " or " * (len(known) > 1) + known[-1]


def meant(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a word that is not among the known ones: the nearest of them, or `otherwise`."""
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), known, 1)
    return f"did you mean {near[0]}?" if near else otherwise


def shortened(word: str, known: Iterable[str]) -> str:
    """The one known word that this one is the beginning of, in any case; "" if none is, or several are."""
    lower = word.lower()
    found = [name for name in known if name.startswith(lower)] if lower else []
    return lower if lower in found else found[0] if len(found) == 1 else ""


def shell_words(word: str) -> tuple[str, ...]:
    """The words that a POSIX shell would make of it, without expansions."""
    if not any(mark in word for mark in "'\"\\"):
        return tuple(word.split())
    import shlex

    try:
        return tuple(shlex.split(word))
    except ValueError:
        raise Expected("words quoted as in a shell", "close the quotation mark") from None


def command(word: str) -> tuple[str, ...]:
    """The words of a command, as `shell_words`, and at least one."""
    words = shell_words(word)
    if not words or not words[0]:
        raise Expected("a command, such as 'nvidia-smi -L'")
    return words


def ranks(word: str) -> int:
    """-n.  To mpirun 0 means "all slots"; a computed 0 is more often a mistake, so it is refused."""
    try:
        return count(word)
    except Expected as error:
        zero = word and not word.strip("0")
        todo = "leave it out to start one rank for each slot" if zero else "for example: -n 4"
        raise Expected(error.what, todo) from None


def exactly(path: str, value: Any) -> Reader:
    """The reader of a flag that sets one field to one value."""
    return lambda: [(path, value)]


def switch(path: str, yes: Any = True, no: Any = False) -> Reader:
    """The reader of a parameter that is yes or no, for a field that has other values."""
    return lambda word: [(path, yes if yes_no(word) else no)]


def variable(word: str) -> tuple[tuple[str, str | None]]:
    """-x: `VAR`, `NCCL_*` or `VAR=value`, where the value may be anything, also empty."""
    name, equals, value = word.partition("=")
    if not name:
        raise Expected("VAR or VAR=value", "for example: -x PATH, or -x OMP_NUM_THREADS=4")
    if equals and ("*" in name or "?" in name):
        raise Expected("VAR=value, or a pattern without a value", "a pattern forwards the variables that are set here")
    return ((name, value if equals else None),)


def variables(word: str) -> tuple[tuple[str, str | None], ...]:
    """mca_base_env_list: `FOO;BAR=2`."""
    return tuple(variable(part)[0] for part in word.split(";") if part)


def files(word: str) -> tuple[str, ...]:
    """Names of files with commas between."""
    names = tuple(name for name in word.split(",") if name)
    if not names:
        raise Expected("FILE, or several with commas between")
    return names


def parameter(key: str, value: str) -> tuple[str, str]:
    """-mca: the name becomes part of the name of a variable, so it cannot contain `=`."""
    if not key or "=" in key:
        raise Expected("the name of a parameter, then its value", "write -mca KEY VALUE, with a blank between")
    return key, value


def stdin(word: str) -> str:
    """A rank without leading zeros, `all` or `none`; mpirun takes any other word for rank 0."""
    if is_number(word):
        return str(int(word))
    if word.lower() not in {"all", "none"}:
        raise Expected("the number of a rank, all or none")
    return word.lower()


def output(word: str) -> Pairs:
    """PATH[:MODIFIERS]; modifiers as in mpirun 4.1: in any case, unknown words ignored with a note."""
    path, colon, after = word.partition(":")
    modifiers = after.lower().split(",") if colon else []
    if not path or not all(modifier.isalpha() for modifier in modifiers):
        raise Expected("PATH, PATH:nocopy, PATH:nojobid or PATH:nocopy,nojobid", "a path cannot contain a colon here")
    unknown = [modifier for modifier in modifiers if modifier not in ("nocopy", "nojobid")]
    note = f"the unknown modifier {', '.join(unknown)} after {path}: is ignored, as by mpirun; write nocopy or nojobid"
    return [
        ("output.directory", path),
        ("output.copy", "nocopy" not in modifiers),
        ("output.jobid", "nojobid" not in modifiers),
        *([("notes+", (note,))] if unknown else []),
    ]


def agent(word: str) -> tuple[str, ...]:
    """A command with its first arguments."""
    words = shell_words(word)
    if not words or not words[0]:
        raise Expected("a command that reaches a host, such as 'ssh -p 2222'")
    return words


def first_agent(word: str) -> tuple[str, ...]:
    """plm_rsh_agent: the first of `ssh : rsh`; a colon inside later words (host:port) is left alone."""
    words = agent(word)
    first, colon, _ = words[0].partition(":")
    return agent(first) if colon else words[: words.index(":")] if ":" in words else words
