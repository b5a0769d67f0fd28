"""The dispatcher: finds the dialect of a command line, parses the line with it, or does what its first word asks.

The dialect is that of --dialect as the first word, else of the command's name, else of a first option that only one
dialect has (`--worker_num=8`), else mpirun's.  The first words of `dialects.ACTIONS` have a meaning under every name.
"""

from __future__ import annotations

import os

from mslaunch.cli.dialects import ACTIONS, COMMANDS, DIALECTS, NAMES, OWN, SHELLS, by_name, marked
from mslaunch.cli.parser.dialect_contract import HelpRequested, VersionRequested
from mslaunch.cli.parser.options import Show, UnknownOptionError
from mslaunch.cli.parser.readers import Expected
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.cli.dialects import DialectRow
    from mslaunch.datamodel.request import Request

_LINKS = 40  # so many links in a row are followed, as by the kernel


def parse(
    argv: Sequence[str], environ: Mapping[str, str], read_text: Callable[[str], str], called: str = OWN
) -> Request:
    """The request of a command line; `called` is the path of the command.

    Raises `LaunchError`, or `Show` for what is not a launch.
    """
    name = called_as(called)
    row = COMMANDS.get(name)
    if row is None:
        name = OWN
    if argv and argv[0][:1] == "-":
        chosen, argv = _first(argv, environ)
        if chosen is None and row is None and argv:
            chosen = marked(argv[0])
        if chosen:
            row, name = chosen, OWN
    row = row or DIALECTS[0]
    dialect = row.load()
    try:
        return dialect.parse(argv, environ, read_text)
    except VersionRequested:
        text = dialect.version(name)
    except HelpRequested:
        from mslaunch.cli.help import catalog

        text = catalog.text(row.name)
    except UnknownOptionError as error:
        from mslaunch.cli import unknown_options

        raise unknown_options.refusal(error) from None
    raise Show(text)


def called_as(path: str) -> str:
    """The name of the command.

    mpiexec is both Open MPI's and MPICH's: of a link called so, the first other name of a launcher that it leads to.
    """
    name = os.path.basename(path)
    for _ in range(_LINKS):
        if os.path.basename(path) != "mpiexec":
            break
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:
            break
    target = os.path.basename(path)
    return target if name == "mpiexec" and target in COMMANDS else name


def _first(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[DialectRow | None, Sequence[str]]:
    """The dialect that --dialect names, and the words after it; raises `Show` for the other first words."""
    action, equals, value = argv[0].lstrip("-").partition("=")
    if not any(action in row.names for row in ACTIONS):
        return None, argv
    words = [value, *argv[1:]] if equals else list(argv[1:])
    if action == "dialect":
        return by_name(_one_of("--dialect", NAMES, words)), words[1:]
    if action == "install-shims":
        from mslaunch.cli import shims

        raise Show(shims.install(words))
    if action in ("status", "stop"):
        from mslaunch.cli import job_commands

        raise (job_commands.status if action == "status" else job_commands.stop)(words, environ)
    if action == "completion":
        from mslaunch.cli.help import completion

        shell = _one_of("--completion", SHELLS, words)
        _require_end("--completion", words[1:])
        raise Show(completion.script(shell))
    from mslaunch.cli.help import manpage

    _require_end("--man", words)
    raise Show(manpage.page())


def _one_of(option: str, known: Sequence[str], words: Sequence[str]) -> str:
    from mslaunch.cli.parser import readers

    if not words:
        raise UsageError("its value is missing", option, f"write {option} {readers.one_of(known)}")
    try:
        return str(readers.choice(*known)(words[0]))
    except Expected as error:
        raise UsageError(f"expected {error.what}, got {words[0]!r}", option, error.todo) from None


def _require_end(option: str, words: Sequence[str]) -> None:
    if words:
        raise UsageError(f"it takes nothing more, got {words[0]!r}", option, "leave out what follows it")
