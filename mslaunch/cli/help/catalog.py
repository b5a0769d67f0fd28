"""The catalogue: what each dialect has to tell, for help, the man page, completions and the docs.

Only imported when somebody reads.  It knows where the tables are and no option by name.  The surprising thing: options
that all dialects share are in the table of mpirun alone, and are shown with the others under a title of their own.
"""

from __future__ import annotations

from mslaunch.cli.dialects import VERBS
from mslaunch.cli.help import help_text as helping
from mslaunch.cli.hydra import options as hydraoptions
from mslaunch.cli.hydra import parse as hydra
from mslaunch.cli.mpirun import parse as mpirun
from mslaunch.cli.msrun import options as msruntable
from mslaunch.cli.msrun import parse as msrun
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.cli.parser.options import Option, Variable

SHARED = "Options of mslaunch that help here as well"


class Dialect(NamedTuple):
    """All that one dialect has to tell."""

    name: str
    whose: str  # the command whose words these are
    table: tuple[Option, ...]
    parameters: tuple[Variable, ...] = ()
    variables: tuple[Variable, ...] = ()
    others: tuple[tuple[str, str], ...] = ()  # more variables, and what is to be said of them
    examples: tuple[tuple[str, str], ...] = ()


def dialect(name: str) -> Dialect:
    """The dialect of this name: mpirun, hydra or msrun."""
    if name == "hydra":
        table = (*hydraoptions.TABLE, *_shared(hydra.extras()))
        return Dialect(
            name, "mpiexec.hydra", table, (), hydraoptions.VARIABLES, hydraoptions.OTHERS, hydraoptions.EXAMPLES
        )
    if name == "msrun":
        return Dialect(name, "msrun", (*msruntable.TABLE, *_shared(msrun.extras())), examples=msruntable.EXAMPLES)
    table = (*mpirun.table(), *VERBS)
    return Dialect("mpirun", "mpirun", table, mpirun.parameters(), mpirun.variables(), (), helping.EXAMPLES)


def text(name: str) -> str:
    """What --help prints in this dialect."""
    about = dialect(name)
    usage, syntax = f"Usage: mslaunch --dialect {name} [options] program [arguments]", helping.SYNTAX
    if name == "msrun":
        usage, syntax = msruntable.USAGE, msruntable.SYNTAX
    columns = helping.columns()
    return helping.help_text(about.table, columns, about.parameters, about.variables, usage, about.examples, syntax)


def _shared(rows: Iterable[Option]) -> tuple[Option, ...]:
    return tuple(row._replace(group=SHARED) for row in rows)
