"""Dialects: in whose words a command line is written, told by the name of the command or by --dialect.

A link named mpirun or mpiexec.hydra takes on that dialect, whoever made it; `shims` makes such links.  Under our own
name a first option of msrun's, `--worker_num=8`, says that the line is msrun's.  It also knows the few first words that
are no launch at all (`VERBS`), under any name.  The one surprising thing: mpiexec is Open MPI's word and MPICH's, so a
link of that name is asked where it leads: to mpiexec.hydra it is hydra's, else it is Open MPI's.
"""

from __future__ import annotations

import os

from mslaunch.cli.parser.options import Option, Show
from mslaunch.cli.parser.readers import Expected
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.request import Request

OWN = "mslaunch"
#: name of a command -> its dialect; any other name is our own, with mpirun's dialect
OF_NAME = {
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"), "mpirun"),
    **dict.fromkeys(("mpiexec.hydra", "mpirun.hydra", "mpiexec.mpich", "mpirun.mpich"), "hydra"),
    "msrun": "msrun",
}
NAMES = ("mpirun", "hydra", "msrun")
SHELLS = ("bash", "zsh", "fish")
_LINKS = 40  # so many links behind each other are followed, as by the kernel

GROUP = "Instead of a launch, as the first word"
#: these stand before everything else
VERBS: tuple[Option, ...] = (
    Option(("dialect",), "|".join(NAMES), "the words that follow are in this dialect", GROUP, default="mpirun"),
    Option(("install-shims",), "DIR [NAME…]",
           "make links in DIR that are called mpirun, mpiexec, mpiexec.hydra and msrun, or as you say (also orterun, "
           "mpiexec=hydra), and take on that dialect", GROUP),
    Option(("status",), "[JOB]", "tell what became of detached jobs (msrun's --join=False), or of one; then the exit "
           "code is 0 while it runs, and the job's once it has ended", GROUP),
    Option(("stop",), "JOB", "end a detached job, and wait until it has ended", GROUP),
    Option(("completion",), "|".join(SHELLS), "print the completion of this shell", GROUP),
    Option(("man",), "", "print the man page, for man -l -", GROUP),
)  # fmt: skip


def parse(
    argv: Sequence[str], environ: Mapping[str, str], read_text: Callable[[str], str], called: str = OWN
) -> Request:
    """The request that the words make in the dialect of the command's name, or in that of --dialect.

    `called` is the path that the command was called by.  Raises `LaunchError`, or `Show` for what is no launch.
    """
    name = called_as(called)
    dialect = OF_NAME.get(name, "")
    if argv and argv[0][:1] == "-":
        said, argv = _first(argv, environ)
        said = said or ("msrun" if not dialect and argv and _is_of_msrun(argv[0]) else "")
        dialect, name = said or dialect, OWN if said else name
    if dialect == "hydra":
        from mslaunch.cli.hydra import parse as hydra

        return hydra.parse(argv, environ, read_text)
    if dialect == "msrun":
        from mslaunch.cli.msrun import parse as msrun

        return msrun.parse(argv, environ, read_text)
    from mslaunch.cli.mpirun import parse as mpirun

    return mpirun.parse(argv, environ, read_text, name if dialect else OWN)


def called_as(path: str) -> str:
    """The name of the command; if it is mpiexec, the first other name that its links lead to and that has a dialect."""
    name = os.path.basename(path)
    for _ in range(_LINKS):
        if os.path.basename(path) != "mpiexec":
            break
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:
            break
    target = os.path.basename(path)
    return target if name == "mpiexec" and target in OF_NAME else name


def _is_of_msrun(word: str) -> bool:
    """Whether it is an option that msrun alone has: the names with an underscore, and what argparse takes for them."""
    bare = word[2:].partition("=")[0]
    if word[:2] != "--" or "_" not in bare:
        return False
    from mslaunch.cli.msrun.options import TABLE

    return any(name.startswith(bare) for row in TABLE for name in row.names)


def _first(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[str, Sequence[str]]:
    """The dialect that the first words say, and the words behind it; raises `Show` for a verb that prints."""
    verb, equals, value = argv[0].lstrip("-").partition("=")
    if not any(verb in row.names for row in VERBS):
        return "", argv
    words = [value, *argv[1:]] if equals else list(argv[1:])
    if verb == "dialect":
        return _one_of("--dialect", NAMES, words), words[1:]
    if verb == "install-shims":
        from mslaunch.cli import shims

        raise Show(shims.install(words))
    if verb in ("status", "stop"):
        from mslaunch.cli import job_commands

        raise (job_commands.status if verb == "status" else job_commands.stop)(words, environ)
    if verb == "completion":
        from mslaunch.cli.help import completion

        shell = _one_of("--completion", SHELLS, words)
        _nothing_behind("--completion", words[1:])
        raise Show(completion.script(shell))
    from mslaunch.cli.help import manpage

    _nothing_behind("--man", words)
    raise Show(manpage.page())


def _one_of(option: str, known: Sequence[str], words: Sequence[str]) -> str:
    """The first word, which is one of those known.  Raises `UsageError`."""
    from mslaunch.cli.parser import readers
    from mslaunch.errors import UsageError

    if not words:
        raise UsageError("a word is missing behind it", option, f"write {option} {readers.one_of(known)}")
    try:
        return str(readers.choice(*known)(words[0]))
    except Expected as error:
        raise UsageError(f"expected {error.what}, got {words[0]!r}", option, error.todo) from None


def _nothing_behind(option: str, words: Sequence[str]) -> None:
    from mslaunch.errors import UsageError

    if words:
        raise UsageError(f"it takes nothing more, got {words[0]!r}", option, "leave out what stands behind it")
