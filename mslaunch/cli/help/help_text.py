"""The help text of a dialect, made of its table: grouped options, their defaults, and a few commands to start from.

Only imported when somebody asks for help.  It knows no option by name; the one surprising thing is that refused
options are named in one paragraph, since what to do instead is said when one is used.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence

from mslaunch.cli.parser.options import REFUSED, Option, Variable, spelled

EXAMPLES = (
    ("4 ranks on this host", "mslaunch -n 4 python train.py"),
    ("one rank for each slot of a file of hosts", "mslaunch --hostfile hosts python train.py"),
    ("8 ranks on two hosts", "mslaunch -n 8 -H node01:4,node02:4 python train.py"),
    ("a log for each rank, and a quiet terminal", "mslaunch -n 4 --output-filename logs:nocopy python train.py"),
    (
        "see where ranks would go, start nothing",
        "mslaunch --hostfile hosts --display-map --do-not-launch python train.py",
    ),
)

USAGE = "Usage: mslaunch [options] program [arguments]"
PARAMETERS_TITLE = "Parameters (--mca, or OMPI_MCA_KEY) that steer mslaunch"
VARIABLES_TITLE = "Other variables that steer mslaunch; options win"

_INTRO = "Start the ranks of a job on one host or many, carry their output home, and end them together."
SYNTAX = (
    "Options end at the program's name, or at '--'. A name takes one dash or two, its value follows after "
    "a blank or '='. Several programs make one job when a lone ':' stands between them."
)
_COLUMN = 28  # where descriptions begin


def columns() -> int:
    """How wide the terminal is that help is printed on."""
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return 80


def names_of(option: Option) -> str:
    """How the option is written: `-n, --np N`."""
    return " ".join([", ".join(spelled(name) for name in option.names), option.metavar]).strip()


def refused(table: Iterable[Option]) -> str:
    """The names of the refused options, with commas between."""
    return ", ".join(spelled(name) for option in table if option.status == REFUSED for name in option.names)


def groups(table: Iterable[Option]) -> dict[str, list[Option]]:
    """The options by group, both in the order of the table."""
    found: dict[str, list[Option]] = {}
    for option in table:
        found.setdefault(option.group, []).append(option)
    return found


def merged(rows: Iterable[Variable]) -> list[tuple[str, str]]:
    """(names, meaning) of variables, where those that mean the same stand together."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.help, []).append(row.name)
    return [(", ".join(names), meaning) for meaning, names in found.items()]


def help_text(
    table: Sequence[Option],
    width: int,
    parameters: Sequence[Variable] = (),
    variables: Sequence[Variable] = (),
    usage: str = USAGE,
    examples: Sequence[tuple[str, str]] = EXAMPLES,
    syntax: str = SYNTAX,
) -> str:
    """The whole help, without a final newline, in lines of at most `width` columns (held between 60 and 100)."""
    width = max(60, min(width, 100))
    parts = [usage, textwrap.fill(_INTRO, width), textwrap.fill(syntax, width)]
    for group, members in groups(table).items():
        rows = [_entry(names_of(option), described(option), width) for option in members if option.status != REFUSED]
        parts += _part(group, rows)
    parts += _part(PARAMETERS_TITLE, [_entry(names, meaning, width) for names, meaning in merged(parameters)])
    parts += _part(VARIABLES_TITLE, [_entry(names, meaning, width) for names, meaning in merged(variables)])
    names = refused(table)
    if names:
        sentence = "Refused, each with what to use instead: " + names
        parts.append(textwrap.fill(sentence, width, break_on_hyphens=False))
    parts += _part("Examples", [f"  # {what}\n  {command}" for what, command in examples])
    return "\n\n".join(parts)


def _part(title: str, rows: list[str]) -> list[str]:
    """One paragraph with a title; none if there is nothing in it."""
    return ["\n".join([title + ":", *rows])] if rows else []


def described(option: Option) -> str:
    """What the option does, and its default."""
    return option.help + (f" (default: {option.default})" if option.default else "")


def _entry(names: str, meaning: str, width: int) -> str:
    """One row: its names, and the description beside or below them."""
    lines = textwrap.wrap(meaning, width - _COLUMN, break_on_hyphens=False)
    if len(names) > _COLUMN - 4:
        heads = textwrap.wrap(names, width - 2, break_on_hyphens=False)
        return "\n".join([*("  " + head for head in heads), *(" " * _COLUMN + line for line in lines)])
    return "\n".join([("  " + names).ljust(_COLUMN) + lines[0], *(" " * _COLUMN + line for line in lines[1:])])
