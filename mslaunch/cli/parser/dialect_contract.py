"""The contract of a dialect: what its module provides, and the record from which help and docs are made.

`cli.dialects` is the table of dialects.  A dialect is a folder beside this one, whose module `parse` satisfies
`Dialect`, and a row of that table.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from mslaunch.cli.parser.options import Option, Variable
    from mslaunch.datamodel.request import Request

    ReadText = Callable[[str], str]  # path -> text of the file; raises OSError

    class Dialect(Protocol):
        """The module of one dialect."""

        def parse(self, argv: Sequence[str], environ: Mapping[str, str], read_text: ReadText, /) -> Request:
            """The request of a command line without the command's name.

            Raises `LaunchError`, `HelpRequested` or `VersionRequested`.
            """

        def version(self, called: str, /) -> str:
            """What --version prints; `called` is the name of the command, or `mslaunch`."""

        def describe(self) -> DialectHelp:
            """What help, the man page, completions and the docs show."""


SYNTAX = (
    "Options end at the program's name, or at '--'. A name takes one dash or two, its value follows after "
    "a blank or '='. Several programs make one job when a lone ':' stands between them."
)


class DialectHelp(NamedTuple):
    """The documentation of one dialect."""

    whose: str  # the command whose options these are
    usage: str
    own: tuple[Option, ...]
    shared: tuple[Option, ...] = ()  # options of mslaunch, taken from the table of mpirun
    parameters: tuple[Variable, ...] = ()
    variables: tuple[Variable, ...] = ()
    others: tuple[tuple[str, str], ...] = ()  # more variables, and what becomes of each
    examples: tuple[tuple[str, str], ...] = ()  # what it does, the command
    syntax: str = SYNTAX
    everyday: tuple[tuple[str, str], ...] = ()  # first names of options for a screen, with a short meaning, or ""
    instead: Mapping[str, str] = {}  # its options, and what the dialect of our own name has for them

    @property
    def table(self) -> tuple[Option, ...]:
        """All options, in the order in which help shows them."""
        return (*self.own, *self.shared)
