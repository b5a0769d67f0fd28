"""The help text of a dialect, made of its table: options by group, their defaults, and examples; and parts of it.

Refused options are only named, in one paragraph; using one prints what to use instead.
"""

from __future__ import annotations

from mslaunch.cli.dialects import ACTIONS, DIALECTS, by_name
from mslaunch.cli.parser.options import REFUSED, Option, Variable, spelled
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.cli.parser.dialect_contract import DialectHelp

PARAMETERS_TITLE = "Parameters (--mca, or OMPI_MCA_KEY) that steer mslaunch"
VARIABLES_TITLE = "Other variables that steer mslaunch; options win"

SHARED = "Options of mslaunch that help here as well"

_INTRO = "Start the ranks of a job on one host or many, show their output here, and end them together."
_COLUMN = 28  # where descriptions begin


def documentation(name: str) -> DialectHelp:
    """The options of a dialect; shared options have a group of their own, and our own dialect the actions."""
    about = by_name(name).load().describe()
    if name == DIALECTS[0].name:
        return about._replace(shared=ACTIONS)
    return about._replace(shared=tuple(row._replace(group=SHARED) for row in about.shared))


def names_of(option: Option) -> str:
    """The names of an option and its values: `-n, --np N`."""
    return " ".join([", ".join(spelled(name) for name in option.names), option.metavar]).strip()


def refused(table: Iterable[Option]) -> str:
    """The names of the refused options."""
    return ", ".join(spelled(name) for option in table if option.status == REFUSED for name in option.names)


def groups(table: Iterable[Option]) -> dict[str, list[Option]]:
    """The options by group, both in the order of the table."""
    found: dict[str, list[Option]] = {}
    for option in table:
        found.setdefault(option.group, []).append(option)
    return found


def merged(rows: Iterable[Variable]) -> list[tuple[str, str]]:
    """(names, meaning) of variables; those with one meaning are joined."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.help, []).append(row.name)
    return [(", ".join(names), meaning) for meaning, names in found.items()]


def help_text(about: DialectHelp, width: int) -> str:
    """The whole help, without a final newline, in lines of `width` columns (held between 60 and 100); see `wrap`."""
    width = max(60, min(width, 100))
    parts = [about.usage, _fill(_INTRO, width), _fill(about.syntax, width)]
    for group, members in groups(about.table).items():
        rows = [entry_of(option, width) for option in members if option.status != REFUSED]
        parts += _part(group, rows)
    for title, variables in ((PARAMETERS_TITLE, about.parameters), (VARIABLES_TITLE, about.variables)):
        parts += _part(title, [entry(names, meaning, width) for names, meaning in merged(variables)])
    names = refused(about.table)
    if names:
        parts.append(_fill("Refused, each with what to use instead: " + names, width))
    parts += _part("Examples", [f"  # {what}\n  {command}" for what, command in about.examples])
    return "\n\n".join(parts)


def _part(title: str, rows: list[str]) -> list[str]:
    """One paragraph with a title; none if it is empty."""
    return ["\n".join([title + ":", *rows])] if rows else []


def described(option: Option) -> str:
    """The meaning of an option, and its default."""
    return option.help + (f" (default: {option.default})" if option.default else "")


def entry_of(option: Option, width: int) -> str:
    """One option with its names, values, meaning and default."""
    return entry(names_of(option), described(option), width)


def short_entry(option: Option, meaning: str, width: int) -> str:
    """One line of at most `width` letters: an option and its values, and `meaning`, or the beginning of its own."""
    head = min((names_of(option._replace(names=option.names[:count])) for count in (1, 2)), key=_misfit)
    head = f"  {head}".ljust(_COLUMN - 2) + "  "
    text = meaning or option.help.partition("; ")[0]
    lines = wrap(text, width - len(head))
    return head + (wrap(text, width - len(head) - 2)[0] + " …" if lines[1:] else lines[0])


def _misfit(head: str) -> int:
    """How badly a text fits the column: the longest that does is best, else the shortest."""
    return len(head) if len(head) > _COLUMN - 4 else -len(head)


def entry(names: str, meaning: str, width: int) -> str:
    """Names in a column, and what they mean beside or below it."""
    lines = wrap(meaning, width - _COLUMN)
    if len(names) > _COLUMN - 4:
        heads = wrap(names, width - 2)
        return "\n".join([*("  " + head for head in heads), *(" " * _COLUMN + line for line in lines)])
    return "\n".join([("  " + names).ljust(_COLUMN) + lines[0], *(" " * _COLUMN + line for line in lines[1:])])


def _fill(text: str, width: int) -> str:
    return "\n".join(wrap(text, width))


def wrap(text: str, width: int) -> list[str]:
    """The words of `text` in lines of at most `width` characters; a longer word has a line of its own.

    textwrap imports re and compiles large patterns, which takes half as long as all of --help.
    """
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if len(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines
