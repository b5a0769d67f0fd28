"""The program file of an app context on this host, and why one cannot be run.

A program without a slash is looked for, in this order (as mpirun 4.1.4), in the directories of --path, in the PATH that
the rank will see, and in the working directory.  Unlike mpirun's, the working directory does not count if others can
write there: whoever puts a file of a misspelt name into /tmp would have it run.
"""

from __future__ import annotations

import errno
import os

from mslaunch.errors import EXIT_NOT_FOUND, EXIT_NOT_STARTED, LaunchError, limit_of
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.system_files import head_of, who_else

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.node_plan import AppPlan, RankPlan

_PYTHONS = ("python", "pypy")
_FLAGS = frozenset("bBdEiIOPqRsSuvx")  # options of python that take no value, and after which a script follows
_VALUED = ("-W", "-X")  # those that take one
_SPAWN_ERRORS = {
    errno.ENOEXEC: "{name} is no program for this machine, or a script whose first line is not #!",
    errno.ENOENT: "the interpreter that {name} asks for in its first line is missing",  # the file itself is there
    errno.E2BIG: "the arguments and variables of {name} are too long for the kernel",
    errno.EMFILE: "this host allows too few open files for its ranks, so {name} was not started{limit}",
    errno.EAGAIN: "this host allows too few processes for its ranks, so {name} was not started{limit}",
}


def command(app: AppPlan, rank: RankPlan, index: bool, path: str, wdir: str) -> tuple[str, list[str]]:
    """The file to execute in `wdir`, and its arguments, program first; raises `LaunchError` with code 126 or 127.

    `path` is the PATH of the rank.  `index`: the program's own name ends in the rank (--index-argv-by-rank).  A
    wrapper gets the file that was found, since it may search elsewhere.
    """
    found = find_program(app.argv[0], f"{app.path}:{path}" if app.path else path, wdir)
    if rank.wrapper:
        todo = "install it there, or leave out the option that asks for it (--xterm)"
        return find_program(rank.wrapper[0], path, wdir, todo), [*rank.wrapper, found, *app.argv[1:]]
    return found, [f"{app.argv[0]}-{rank.rank}" if index else app.argv[0], *app.argv[1:]]


def find_program(name: str, path: str, wdir: str, todo: str = "give its whole path, or -x PATH") -> str:
    """The file to execute in `wdir`; raises `LaunchError` with code 126 or 127.

    A name with a slash is returned as it is: a script finds it in its argv[0], as with mpirun.
    """
    if "/" in name:
        _check(os.path.join(wdir, name), name)
        return name
    refused, folders = "", path.split(":")
    where = f"the PATH of the ranks there is {path}" if path else "the ranks there have no PATH"
    for folder in [*folders, wdir]:
        candidate = os.path.join(wdir, folder, name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                if candidate == os.path.join(wdir, name) and wdir not in folders:  # an empty entry is often a mistake
                    _require_private(candidate, name, wdir, where)
                return candidate
            refused = refused or candidate
    if refused:
        _check(refused, name)
    raise LaunchError(f"the program {name!r} was not found", todo=f"{where}\n{todo}", code=EXIT_NOT_FOUND)


def _require_private(path: str, name: str, wdir: str, where: str) -> None:
    """Raise if others could have put a program there that is in no PATH and would be run all the same, or change it."""
    for at in (wdir, path):
        who = who_else(os.stat(at))
        if who:
            what = f"the program {name!r} is not in PATH, and {path} is not run, since {who} can write to {at}"
            raise LaunchError(what, todo=f"type ./{name} if you mean that file\n{where}", code=EXIT_NOT_FOUND)


def _check(path: str, name: str) -> None:
    if not os.path.exists(path):
        raise LaunchError(f"the program {name!r} does not exist", todo=f"looked at {path}", code=EXIT_NOT_FOUND)
    if os.path.isdir(path):
        raise LaunchError(f"{name!r} is a directory, not a program", todo=f"looked at {path}", code=EXIT_NOT_STARTED)
    if not os.access(path, os.X_OK):
        raise LaunchError(
            f"{name!r} is not executable",
            todo=f"chmod +x {path}, or name its interpreter, as in: python {name}",
            code=EXIT_NOT_STARTED,
        )


def check_wdir(wdir: str) -> None:
    """Raises `LaunchError` if ranks cannot start in `wdir`."""
    needs = (
        (os.path.exists(wdir), "does not exist"),
        (os.path.isdir(wdir), "is not a directory"),
        (os.access(wdir, os.X_OK), "may not be entered"),
    )
    for met, problem in needs:
        if not met:
            what = f"the working directory {wdir} {problem}"
            raise LaunchError(what, todo="make it usable there, or name another with --wdir", code=EXIT_NOT_STARTED)


def check_script(argv: Sequence[str], wdir: str) -> None:
    """Raises `LaunchError` if `argv` gives Python a script that is not there: Python itself says so too late.

    By then the job counts as running, and a detached one has nobody who reads what Python prints.
    """
    name = script_of(argv)
    path = os.path.join(wdir, name)
    if name and not os.path.exists(path):
        todo = "is its name right? each host with ranks needs it: copy it there, or use --preload-files"
        raise LaunchError(f"there is no file {path} for {argv[0]}", todo=todo, code=EXIT_NOT_FOUND)


def script_of(argv: Sequence[str]) -> str:
    """The script that a command line of Python names; "" if it names none, as with -c and -m, or is not Python's."""
    if not is_python_name(argv[0]):
        return ""
    words = iter(argv[1:])
    for word in words:
        if word[:1] != "-":
            return word
        if word in _VALUED:
            next(words, "")
        elif word == "-" or not (word.startswith(_VALUED) or _FLAGS.issuperset(word[1:])):
            break
    return ""


def explain_spawn(name: str, error: OSError) -> LaunchError:
    """Why the kernel did not start `name`."""
    what = _SPAWN_ERRORS.get(error.errno or 0, "{name} could not be started: {error}")
    limit = limit_of(error.errno)
    todo = "raise the limit on that host, or start fewer ranks there" if limit else ""
    return LaunchError(what.format(name=repr(name), error=error.strerror, limit=limit), "", todo, EXIT_NOT_STARTED)


def is_python_name(name: str) -> bool:
    """python, python3, pypy3.11; not python-config."""
    name = os.path.basename(name)
    return name.startswith(_PYTHONS) and not name.endswith("-config")


def is_python(path: str) -> bool:
    """True if `path` is a Python interpreter, or a script for one: then PYTHONUNBUFFERED is obeyed."""
    if is_python_name(path):
        return True
    head = head_of(path, 128)
    return head[:2] == b"#!" and b"python" in head.split(b"\n", 1)[0]
