"""The Open MPI of this machine: which file is its mpirun, and of which version.

It is found on PATH, or where `--backend openmpi:PLACE` points, and asked for its version; nothing else is run.  The
surprising thing: a program called mpirun may be MPICH's, which knows none of these options, so the answer decides and
not the name.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.faststd import NamedTuple

NAMES = ("mpirun", "mpirun.openmpi", "orterun", "prterun")
_SECONDS = 15.0  #: for an answer to --version
_TODO = "install Open MPI 4.1 or newer, or say where it is: --backend openmpi:DIR"


class OpenMpiInstallation(NamedTuple):
    """An mpirun that can be used."""

    path: str
    version: tuple[int, ...]
    prterun: bool = False  # PRRTE's own command, which must be told whose ranks they are
    prefix: str = ""  # where the user says it is: other hosts find it there

    @property
    def name(self) -> str:
        """As a person knows it."""
        return f"{'PRRTE' if self.prterun else 'Open MPI'} {'.'.join(map(str, self.version))}"

    @property
    def style(self) -> str:
        """Whose words it takes: those of 4.1 or of 5.0."""
        return "5.0" if self.prterun or self.version >= (5,) else "4.1"


def find(place: str, path: str) -> OpenMpiInstallation:
    """The mpirun at `place` (a file, or a directory that holds it or a bin with it), else on `path`.

    Raises `LaunchError` if there is none, or it is no Open MPI, or too old.
    """
    files = _at(place) if place else _on(path)
    others = []
    for file in files:
        found = understood(file, _answer(file))
        if isinstance(found, OpenMpiInstallation):
            return _checked(found._replace(prefix=_prefix(file) if place else ""))
        others.append(found)
    if others:
        raise LaunchError(others[0], "--backend openmpi", _TODO)
    where = f"there is none at {place}" if place else "no mpirun is on PATH"
    raise LaunchError(f"Open MPI was not found: {where}", "--backend openmpi", _TODO)


def understood(file: str, answer: str) -> OpenMpiInstallation | str:
    """What an answer to --version tells, or why it is of no use."""
    for line in answer.splitlines():
        for word, prterun in (("(Open MPI) ", False), ("(OpenRTE) ", False), ("prterun (PRRTE) ", True)):
            number = line.partition(word)[2].split(" ")[0]
            if number[:1].isdigit():
                digits = ("".join(filter(str.isdigit, part[:3])) for part in number.split("."))
                return OpenMpiInstallation(file, tuple(int(part) for part in digits if part), prterun)
    first = next(iter(answer.splitlines()), "").strip()
    whose = "it is MPICH's" if "HYDRA" in answer else f"it says {first[:60]!r} of its version"
    return f"{file} is not Open MPI's: {whose}"


def _checked(found: OpenMpiInstallation) -> OpenMpiInstallation:
    if found.version < ((3,) if found.prterun else (4, 1)):
        raise LaunchError(f"{found.path} is {found.name}, which is too old", "--backend openmpi", _TODO)
    return found


def _at(place: str) -> list[str]:
    folders = (place, os.path.join(place, "bin"))
    names = [place, *(os.path.join(folder, name) for folder in folders for name in NAMES)]
    return [os.path.abspath(name) for name in names if _runs(name)][:1]


def _on(path: str) -> list[str]:
    return [os.path.join(folder, name) for name in NAMES for folder in path.split(":") if _runs(f"{folder}/{name}")]


def _runs(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)


def _prefix(file: str) -> str:
    folder = os.path.dirname(file)
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else ""


def _answer(file: str) -> str:
    """What it says to --version; "" if nothing within `_SECONDS`."""
    import subprocess

    try:
        done = subprocess.run(
            [file, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
