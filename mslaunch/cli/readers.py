"""Readers: what one option's words, as they were typed, become; each raises `Expected` for words it cannot take.

The first half is of use to any dialect, the second half knows the spellings of mpirun 4.1.  Nothing here knows
which option asked.  The one surprising thing: a reader may set several fields at once, and then gives a list of
(path, value), see `mslaunch.cli.options`.
"""

from __future__ import annotations

from mslaunch.lean import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Reader = Callable[..., Any]  # words -> value; raises Expected
    Setting = tuple[str, Any]  # path, value


class Expected(Exception):  # noqa: N818 - the word after it completes the sentence
    """A reader met a word it cannot take: `what` it expects, and what `todo`."""

    def __init__(self, what: str, todo: str = "") -> None:
        super().__init__(what, todo)
        self.what = what
        self.todo = todo


def on() -> bool:
    """A flag that says yes."""
    return True


def off() -> bool:
    """A flag that says no."""
    return False


def text(word: str) -> str:
    """Any word but an empty one."""
    if not word:
        raise Expected("something that is not empty")
    return word


def texts(word: str) -> tuple[str]:
    """The same, for a field that collects."""
    return (text(word),)


def count(word: str) -> int:
    """A whole number from 1 to 999999999."""
    if not (word.isascii() and word.isdigit() and len(word) <= 9 and int(word)):
        raise Expected("a whole number, 1 or more")
    return int(word)


def number(word: str) -> float:
    """A plain decimal number, of any sign, below 1e9 in size."""
    try:
        value = float(word) if word.isascii() and "_" not in word else None
    except ValueError:
        value = None
    if value is None or not -1e9 < value < 1e9:
        raise Expected("a number of seconds")
    return value


def limit(word: str) -> float | None:
    """Seconds; 0 or less stands for no limit, and gives None."""
    value = number(word)
    return value if value > 0 else None


def span(word: str) -> float:
    """Seconds, 0 or more."""
    value = number(word)
    if value < 0:
        raise Expected("a number of seconds, 0 or more")
    return value


def wait(word: str) -> float:
    """Seconds, more than 0."""
    value = number(word)
    if value <= 0:
        raise Expected("a number of seconds, more than 0")
    return value


def yes_no(word: str) -> bool:
    """The words that Open MPI's boolean parameters take, and on and off; in any case."""
    lower = word.lower()
    yes = lower in {"1", "yes", "true", "t", "y", "on", "enabled"}
    if not yes and lower not in {"0", "no", "false", "f", "n", "off", "disabled"}:
        raise Expected("1 or 0")
    return yes


def choice(*known: str) -> Reader:
    """The reader that takes one of some words, in any case."""

    def read(word: str) -> str:
        if word.lower() not in known:
            raise Expected(", ".join(known[:-1]) + " or " + known[-1])
        return word.lower()

    return read


def shell_words(word: str) -> tuple[str, ...]:
    """The words a POSIX shell would make of it, without expansions."""
    if not any(mark in word for mark in "'\"\\"):
        return tuple(word.split())
    import shlex

    try:
        return tuple(shlex.split(word))
    except ValueError:
        raise Expected("words quoted as in a shell", "close the quotation mark") from None


def ranks(word: str) -> int:
    """-n: mpirun takes 0 for "all slots"; a computed 0 is more often a mistake, so leaving -n out is the only way."""
    try:
        return count(word)
    except Expected as error:
        raise Expected(error.what, "leave it out to start one rank for each slot") from None


def exactly(path: str, value: Any) -> Reader:
    """The reader of a flag that sets one field to one value."""
    return lambda: [(path, value)]


def variable(word: str) -> tuple[tuple[str, str | None]]:
    """-x: `VAR`, `NCCL_*` or `VAR=value`, where the value may be anything, also nothing."""
    name, equals, value = word.partition("=")
    if not name:
        raise Expected("VAR or VAR=value")
    if equals and ("*" in name or "?" in name):
        raise Expected("VAR=value, or a pattern without a value", "a pattern forwards the variables that are set here")
    return ((name, value if equals else None),)


def variables(word: str) -> tuple[tuple[str, str | None], ...]:
    """mca_base_env_list: `FOO;BAR=2`."""
    return tuple(variable(part)[0] for part in word.split(";") if part)


def parameter(key: str, value: str) -> tuple[str, str]:
    """-mca: the name becomes part of the name of a variable, so it cannot hold `=`."""
    if not key or "=" in key:
        raise Expected("the name of a parameter, then its value", "write -mca KEY VALUE, with a blank between")
    return key, value


def stdin(word: str) -> str:
    """A rank without leading zeros, `all` or `none`; mpirun takes any other word for rank 0."""
    if word.isascii() and word.isdigit() and len(word) <= 9:
        return str(int(word))
    if word.lower() not in {"all", "none"}:
        raise Expected("the number of a rank, all or none")
    return word.lower()


def output(word: str) -> list[Setting]:
    """PATH[:MODIFIERS]; modifiers as mpirun 4.1: any case, unknown words ignored."""
    path, colon, after = word.partition(":")
    modifiers = after.lower().split(",") if colon else []
    if not path or not all(modifier.isalpha() for modifier in modifiers):
        raise Expected("PATH, PATH:nocopy, PATH:nojobid or PATH:nocopy,nojobid", "a path cannot hold a colon here")
    return [
        ("output.directory", path),
        ("output.copy", "nocopy" not in modifiers),
        ("output.jobid", "nojobid" not in modifiers),
    ]


def map_by(word: str) -> list[Setting]:
    """POLICY[:MODIFIER,…], in any case; `slot` and `node` may be shortened, as in mpirun."""
    policy, *modifiers = word.lower().replace(",", ":").split(":")
    settings: list[Setting] = []
    if policy == "ppr":
        if len(modifiers) < 2 or modifiers[1] != "node":
            raise Expected("ppr:N:node", "mslaunch counts ranks by node only, not yet by core or socket")
        settings, modifiers = [("policy.per_node", count(modifiers[0]))], modifiers[2:]
    elif policy:
        full = next((known for known in ("slot", "node") if known.startswith(policy)), "")
        if not full:
            raise Expected("slot, node or ppr:N:node", "use slot: it fills one node after the other")
        settings = [("policy.map_by", full)]
    for modifier in modifiers:
        if modifier not in {"oversubscribe", "nooversubscribe"}:
            raise Expected("the modifier OVERSUBSCRIBE or NOOVERSUBSCRIBE", "mslaunch has no other modifiers yet")
        settings.append(("policy.oversubscribe", modifier == "oversubscribe"))
    return settings


def bind_to(word: str) -> str:
    """--bind-to, without modifiers."""
    if word.lower() not in {"none", "core"}:
        raise Expected("none or core", "mslaunch binds to cores only, one for each rank")
    return word.lower()


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
    if colon:
        words = (first,)
    elif ":" in words:
        words = words[: words.index(":")]
    return words if words[0] else agent("")
