"""The help text of a dialect, made of its table: grouped options, their defaults, and a few commands to start from.

Only imported when somebody asks for help.  It knows no option by name; the one surprising thing is that refused
options are named in one paragraph, since what to do instead is said when one is used.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from mslaunch.cli.options import REFUSED, Option, Variable, spelled

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

PARAMETERS_TITLE = "Parameters (--mca, or OMPI_MCA_KEY) that steer mslaunch"
VARIABLES_TITLE = "Other variables that steer mslaunch; options win"

_INTRO = "Start the ranks of a job on one host or many, carry their output home, and end them together."
_SYNTAX = (
    "Options end at the program's name, or at '--'. A name takes one dash or two, its value follows after "
    "a blank or '='. Several programs make one job when a lone ':' stands between them."
)
_COLUMN = 28  # where descriptions begin


def names_of(option: Option) -> str:
    """How the option is written: `-n, --np N`."""
    return " ".join([", ".join(spelled(name) for name in option.names), option.metavar]).strip()


def groups(table: Iterable[Option]) -> dict[str, list[Option]]:
    """The options by group, both in the order of the table."""
    found: dict[str, list[Option]] = {}
    for option in table:
        found.setdefault(option.group, []).append(option)
    return found


def help_text(
    table: Sequence[Option], width: int, parameters: Sequence[Variable] = (), variables: Sequence[Variable] = ()
) -> str:
    """The whole help, without a final newline, in lines of at most `width` columns (held between 60 and 100)."""
    width = max(60, min(width, 100))
    parts = [
        "usage: mslaunch [options] program [arguments]",
        textwrap.fill(_INTRO, width),
        textwrap.fill(_SYNTAX, width),
    ]
    for group, members in groups(table).items():
        rows = [_entry(names_of(option), _described(option), width) for option in members if option.status != REFUSED]
        parts += _part(group, rows)
    parts += _part(PARAMETERS_TITLE, [_entry(row.name, row.help, width) for row in parameters])
    parts += _part(VARIABLES_TITLE, [_entry(row.name, row.help, width) for row in variables])
    refused = [spelled(name) for option in table if option.status == REFUSED for name in option.names]
    if refused:
        sentence = "Refused, each with what to use instead: " + ", ".join(refused)
        parts.append(textwrap.fill(sentence, width, break_on_hyphens=False))
    parts += _part("Examples", [f"  # {what}\n  {command}" for what, command in EXAMPLES])
    return "\n\n".join(parts)


def _part(title: str, rows: list[str]) -> list[str]:
    """One paragraph with a title; none if there is nothing in it."""
    return ["\n".join([title + ":", *rows])] if rows else []


def _described(option: Option) -> str:
    return option.help + (f" (default: {option.default})" if option.default else "")


def _entry(names: str, described: str, width: int) -> str:
    """One row: its names, and the description beside or below them."""
    head = "  " + names
    lines = textwrap.wrap(described, width - _COLUMN, break_on_hyphens=False)
    if len(head) > _COLUMN - 2:
        return "\n".join([head, *(" " * _COLUMN + line for line in lines)])
    return "\n".join([head.ljust(_COLUMN) + lines[0], *(" " * _COLUMN + line for line in lines[1:])])
