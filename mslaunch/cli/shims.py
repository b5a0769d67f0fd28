"""--install-shims: links called mpirun, mpiexec, msrun … that start mslaunch in that dialect.

A shim is a symbolic link to the `mslaunch` command of this interpreter.  Where there is none (`python -m mslaunch`), a
small script in DIR takes its place.  `mpiexec=hydra` is a link to mpiexec.hydra beside it.  `ompi_info` is no launcher
and would hide that of an Open MPI, so it is made only if it is named.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from mslaunch.cli.dialects import COMMANDS, DIALECTS, INFO, OWN, SHARED
from mslaunch.cli.parser import readers
from mslaunch.errors import LaunchError, UsageError
from mslaunch.host.system_files import head_of

DEFAULT = tuple(name for row in DIALECTS for name in row.shims)
_OPTION = "--install-shims"
_MARK = "# a shim of mslaunch"
_HIDES = f"{INFO} hides that of an Open MPI behind it in PATH, which alone knows what its library was built with."


def install(words: Sequence[str]) -> str:
    """Make the links that `words`, DIR and names, ask for; returns the text to print.  Raises `LaunchError`."""
    if not words or not words[0] or words[0].startswith("-"):
        raise UsageError("DIR is missing", _OPTION, f"write {_OPTION} ~/bin, or {_OPTION} ~/bin mpirun mpiexec.hydra")
    links = list(dict.fromkeys(map(_asked, words[1:]))) or [(name, OWN) for name in DEFAULT]
    links += {(target, OWN) for _, target in links if target != OWN}.difference(links)
    directory = os.path.abspath(words[0])
    for name in [name for name, _ in links] + [OWN] * (not _command()):
        path = os.path.join(directory, name)
        if os.path.lexists(path) and not is_ours(path):
            raise LaunchError("it exists already and is not a shim", path, "move it away, or choose another directory")
    try:
        os.makedirs(directory, exist_ok=True)
        start = _command() or _script(os.path.join(directory, OWN))
        done = [_link(directory, name, start if target == OWN else target) for name, target in links]
    except OSError as error:
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
        what = f"no shims can be made there: {'a part of the path is a file' if no_folder else error.strerror}"
        raise LaunchError(what, directory, "choose a directory of your own, such as ~/bin") from None
    return "\n".join(
        [
            *done,
            "",
            f"They are used once {directory} stands in front of PATH; for bash, zsh and sh:",
            f"    export PATH={shlex.quote(directory)}:$PATH; hash -r",
            f"To check: {links[0][0]} --version. To undo: remove the links.",
            *[_HIDES] * ((INFO, OWN) in links),
        ]
    )


def is_ours(path: str) -> bool:
    """Whether a file starts mslaunch under another name."""
    real = os.path.realpath(path)
    if os.path.islink(path) and os.path.basename(real) == OWN:
        return True
    return _MARK.encode() in head_of(real, 4096)


def _asked(word: str) -> tuple[str, str]:
    """(name, what it leads to) of `mpirun`, or of `mpiexec=hydra`."""
    name, equals, dialect = word.partition("=")
    if word == INFO:
        return word, OWN
    if name not in COMMANDS:
        known = (*COMMANDS, INFO)
        todo = readers.meant(name, known, f"the names are {', '.join(known)}")
        raise UsageError(f"{name!r} is not the name of a launcher", _OPTION, todo)
    if not equals or dialect == COMMANDS[name].name:
        return name, OWN
    target = COMMANDS.get(f"{name}.{dialect}")
    if name not in SHARED or target is None or target.name != dialect:
        todo = "only mpirun and mpiexec have a choice: mpirun=hydra, mpiexec=hydra"
        raise UsageError(f"{name} cannot take the dialect {dialect!r}", _OPTION, todo)
    return name, f"{name}.{dialect}"


def _command() -> str:
    """The path of the `mslaunch` command: the one that runs now, or that of this interpreter; "" if there is none."""
    for path in (sys.argv[0], os.path.join(os.path.dirname(sys.executable), OWN)):
        if os.path.basename(path) == OWN and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    return ""


def _script(path: str) -> str:
    """Write a script in place of the command; it finds the package where this process found it."""
    import mslaunch

    root = os.path.dirname(os.path.dirname(os.path.abspath(mslaunch.__file__)))
    text = (
        f"#!/bin/sh\n{_MARK}\n"
        f'"exec" {_quoted(sys.executable)} "$0" "$@"\n'  # sh sees a command here, Python nothing but strings
        f"import sys\n\nsys.path[0] = {root!r}  # instead of the folder of this file\n\n"
        "from mslaunch.__main__ import main\n\nmain()\n"
    )
    if os.path.lexists(path):
        os.unlink(path)  # as for the links: what is there is replaced, and no link is followed
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(fd, 0o755)
    return path


def _quoted(text: str) -> str:
    """The text in quotes that mean the same to sh and to Python."""
    if any(char in text for char in '"\\$`\n'):
        raise LaunchError("no script can hold this path", text, "install mslaunch for a python elsewhere")
    return f'"{text}"'


def _link(directory: str, name: str, target: str) -> str:
    """Make one link unless it exists; returns the line to print."""
    path = os.path.join(directory, name)
    if os.path.islink(path) and os.readlink(path) == target:
        return f"{path} exists already"
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(target, path)
    return f"{path} -> {target}"
