"""Finds an installed Open MPI: its mpirun, by PATH or the place in `--backend openmpi:PLACE`, and its version.

A program called mpirun may be MPICH's, so the answer to `mpirun --version` decides.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.faststd import NamedTuple

NAMES = ("mpirun", "mpirun.openmpi", "orterun", "prterun")
_SECONDS = 15.0  # for an answer to --version
_TODO = "install Open MPI 4.1 or newer, or say where it is: --backend openmpi:DIR"


class OpenMpiInstallation(NamedTuple):
    """One mpirun, or PRRTE's prterun, which needs an option for ranks of Open MPI."""

    path: str
    version: tuple[int, ...]
    prterun: bool = False
    prefix: str = ""  # the directory that the user named, which is the same on other hosts

    @property
    def name(self) -> str:
        """Name and version."""
        return f"{'PRRTE' if self.prterun else 'Open MPI'} {'.'.join(map(str, self.version))}"

    @property
    def style(self) -> str:
        """The version whose options it takes: "4.1" or "5.0"."""
        return "5.0" if self.prterun or self.version >= (5,) else "4.1"


def find(place: str, path: str) -> OpenMpiInstallation:
    """The first at `place` (a file, or a directory that holds it or a bin with it), else on `path`.

    Raises `LaunchError` if there is none, or it is no Open MPI, or too old.
    """
    where = f"there is none at {place}" if place else "no mpirun is on PATH"
    problems = []
    for file in _candidates(place, path):
        found = parse_version(file, _ask_version(file))
        if isinstance(found, str):
            problems.append(found)
        elif found.version < ((3,) if found.prterun else (4, 1)):
            raise LaunchError(f"{found.path} is {found.name}, which is too old", "--backend openmpi", _TODO)
        else:
            return found._replace(prefix=_prefix(file) if place else "")
    raise LaunchError([*problems, f"Open MPI was not found: {where}"][0], "--backend openmpi", _TODO)


def parse_version(file: str, answer: str) -> OpenMpiInstallation | str:
    """Read the answer to --version.  Returns a text if the file cannot be used, which says why."""
    for line in answer.splitlines():
        for word, prterun in (("(Open MPI) ", False), ("(OpenRTE) ", False), ("prterun (PRRTE) ", True)):
            number = line.partition(word)[2].split(" ")[0]
            if number[:1].isdigit():
                digits = ("".join(filter(str.isdigit, part[:3])) for part in number.split("."))
                return OpenMpiInstallation(file, tuple(int(part) for part in digits if part), prterun)
    first = next(iter(answer.splitlines()), "").strip()
    whose = "it is MPICH's" if "HYDRA" in answer else f"it says {first[:60]!r} of its version"
    return f"{file} is not Open MPI's: {whose}"


def _candidates(place: str, path: str) -> list[str]:
    if not place:
        return [os.path.join(folder, name) for name in NAMES for folder in path.split(":") if _runs(f"{folder}/{name}")]
    folders = (place, os.path.join(place, "bin"))
    names = [place, *(os.path.join(folder, name) for folder in folders for name in NAMES)]
    return [os.path.abspath(name) for name in names if _runs(name)][:1]


def _runs(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)


def _prefix(file: str) -> str:
    folder = os.path.dirname(file)
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else ""


def _ask_version(file: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            [file, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
