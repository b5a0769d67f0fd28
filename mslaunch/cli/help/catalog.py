"""The catalogue of dialects, as help, the man page, completions and the docs show them."""

from __future__ import annotations

from mslaunch.cli.dialects import ACTIONS, DIALECTS, by_name
from mslaunch.cli.help import help_text
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.cli.parser.dialect_contract import DialectHelp

SHARED = "Options of mslaunch that help here as well"


def dialect(name: str) -> DialectHelp:
    """The dialect of this name; shared options have a group of their own, and our own dialect the actions."""
    about = by_name(name).load().describe()
    if name == DIALECTS[0].name:
        return about._replace(shared=ACTIONS)
    return about._replace(shared=tuple(row._replace(group=SHARED) for row in about.shared))


def text(name: str) -> str:
    """What --help prints in this dialect."""
    return help_text.help_text(dialect(name), help_text.columns())
