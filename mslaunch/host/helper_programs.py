"""Programs that mslaunch runs for its own purposes: which directories of PATH count for them, and how they end.

A directory that is not absolute, or an empty entry, means the working directory, where others may have put a program.
"""

from __future__ import annotations

import os

from mslaunch.errors import EXIT_NOT_FOUND, LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.system_files import who_else

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping


def find_helper(name: str, environ: Mapping[str, str], elsewhere: str = "") -> str:
    """The file of a program that we have chosen, which may be in the directory `elsewhere`; "" without one."""
    folders = [*environ.get("PATH", os.defpath).split(":"), elsewhere]
    return _first(name, [each for each in folders if each.startswith("/")])


def find_typed(name: str, environ: Mapping[str, str], wdir: str) -> str:
    """The file of a program that the user has named, to be run in `wdir`; "" without one.

    Raises `LaunchError` if it lies in an entry of PATH that is not absolute, and others could have put it there.
    """
    if "/" in name:
        return _first(os.path.join(wdir, name), [""])
    for folder in environ.get("PATH", os.defpath).split(":"):
        found = _first(name, [os.path.join(wdir, folder)])
        if found:
            if not folder.startswith("/"):
                _require_private(name, found)
            return found
    return ""


def _first(name: str, folders: list[str]) -> str:
    files = (os.path.join(folder, name) for folder in folders)
    return next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), "")


def _require_private(name: str, file: str) -> None:
    for at in (os.path.dirname(file), file):
        who = who_else(os.stat(at))
        if who:
            what = f"{file}, which PATH leads to, is not run, since {who} can write to {at}"
            todo = f"PATH has an entry that is no absolute path; name the whole path of {name}"
            raise LaunchError(what, "", todo, EXIT_NOT_FOUND)


def end_session(started: subprocess.Popen[bytes]) -> None:
    """Kill a program that leads a session, and what it has started there; nothing if it was waited for."""
    if started.returncode is None:
        import signal

        try:
            os.killpg(started.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
