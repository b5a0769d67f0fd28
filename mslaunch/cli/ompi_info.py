"""The shim `ompi_info`: the version of Open MPI whose mpirun mslaunch stands for, and that this is mslaunch.

DeepSpeed's launcher looks for a program of this name before it calls mpirun (deepspeed/launcher/multinode_runner.py).
The lines are those of ompi_info 4.1.4; what it says of a library, its components and parameters has no answer here.
"""

from __future__ import annotations

from mslaunch.cli.dialects import DIALECTS, INFO
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE = f"usage: {INFO} [--version | --parsable]"
_NAMES = {"-V": "--version", "--parseable": "--parsable", "-h": "--help"}


def answer(words: Sequence[str]) -> str:
    """What is printed for these words; raises `UsageError` for those that ask for more."""
    from mslaunch import __version__

    version = DIALECTS[0].load().version(INFO).partition("\n")[0].split()[-1]
    package = f"mslaunch {__version__}, which has the command line of mpirun {version} and no MPI library"
    answers = {
        "": f"{'Package':>24}: {package}\n{'Open MPI':>24}: {version}",
        "--version": f"Open MPI v{version}\n\nmslaunch {__version__} in its place",
        "--parsable": f"package:{package}\nompi:version:full:{version}",
        "--help": f"{_USAGE}\n\nThis is {package}.",
    }
    asked = [_NAMES.get(word, word) for word in words]
    more = next((word for at, word in enumerate(words) if at or not word or asked[at] not in answers), None)
    if more is None:
        return answers[asked[0] if asked else ""]
    todo = f"write {INFO}, {INFO} --version or --parsable; for more, call the {INFO} of an Open MPI by its path"
    raise UsageError(f"this {INFO} is mslaunch's, and there is no MPI library that it could describe", more, todo)
