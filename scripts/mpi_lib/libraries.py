"""The MPI libraries that scripts/test installs: an interpreter with mpi4py for each, and how its launcher is called.

Debian's Open MPI is an environment without an MPI library: mpi4py then takes the system's libmpi, as it does for a user
who has typed `apt-get install openmpi-bin`.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mpi_lib.places import Place

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.abspath(os.environ.get("MSLAUNCH_TEST_CACHE") or os.path.join(ROOT, ".cache", "test-venv"))


class Library(NamedTuple):
    """One MPI library, as a user has it."""

    name: str  # mpich, openmpi4, openmpi5, impi
    title: str
    says: str  # the beginning of what MPI_Get_library_version says
    python: str  # an interpreter whose mpi4py loads it
    launcher: str  # its own
    compiler: str  # "": its users cannot compile with what we install
    env: Mapping[str, str]  # what its ranks need to do all they can, whoever launches them
    env_of_hosts: Mapping[str, str]  # the same, between two hosts

    @property
    def open_mpi(self) -> bool:
        """Whether it speaks PMIx; the others speak PMI."""
        return self.name.startswith("openmpi")

    def ranks_env(self, hosts: int) -> dict[str, str]:
        """The variables that ranks on so many hosts need."""
        return {**self.env, **(self.env_of_hosts if hosts > 1 else {})}


# Over UCX, mpich 5.0.2 hangs between network namespaces in mpi4py's test_comm_topo, under hydra too; not over OFI.
# Intel MPI 2021.18 crashes in MPI_Comm_spawn, under its own launcher too, unless a variable announces it.
_KNOWN = (
    ("mpich", "MPICH 5.0.2", "MPICH Version:", "mpich", {}, {"MPIR_CVAR_CH4_NETMOD": "ofi"}),
    ("openmpi4", "Open MPI 4.1.4 (Debian)", "Open MPI v4.1", "openmpi4", {}, {}),
    ("openmpi5", "Open MPI 5.0.11", "Open MPI v5.0", "openmpi5", {}, {}),
    ("impi", "Intel MPI 2021.18.1", "Intel(R) MPI Library", "impi", {"I_MPI_SPAWN": "on"}, {}),
)
NAMES = tuple(row[0] for row in _KNOWN)


def find_all() -> dict[str, Library]:
    """The libraries that are installed."""
    found = {}
    for name, title, says, environment, env, env_of_hosts in _KNOWN:
        python = os.environ.get(variable(name)) or _cached(environment)
        launcher, compiler = _tools(name, python)
        if python and launcher:
            found[name] = Library(name, title, says, python, launcher, compiler, env, env_of_hosts)
    return found


def variable(name: str) -> str:
    """The variable that names its interpreter."""
    return f"MSLAUNCH_TEST_{name.upper()}_PYTHON"


def _tools(name: str, python: str) -> tuple[str, str]:
    """Launcher and compiler; "" if there is none."""
    if name == "openmpi4":
        return shutil.which("mpirun.openmpi") or "", shutil.which("mpicc.openmpi") or ""
    folder = os.path.dirname(python) if python else "/nonexistent"
    launcher = shutil.which("mpirun" if name == "openmpi5" else "mpiexec.hydra", path=folder)
    return launcher or "", shutil.which("mpicc", path=folder) or ""


def _cached(environment: str) -> str:
    """The environments that scripts/test has installed."""
    paths = glob.glob(os.path.join(CACHE, f"{environment}-*", ".complete"))
    newest = max(paths, key=os.path.getmtime, default="")
    return os.path.join(os.path.dirname(newest), "bin", "python") if newest else ""


def native(library: Library, place: Place, n: int, program: Sequence[str], env: Mapping[str, str] = {}) -> list[str]:
    """The command line of its own launcher: `n` ranks, dealt by slots."""
    variables = {**library.ranks_env(place.hosts), **env}
    if library.open_mpi:
        words = ["--allow-run-as-root", *_overrun(library), *_unbound(place), *_pairs("-x", variables)]
        hosts = ["--hostfile", place.slots(n)] if place.hosts > 1 else []
    else:
        words = _apart("-genv", variables.items())
        # Intel's hydra overlooks the slots, and MPICH's hangs in MPI_Comm_spawn_multiple if it gets -ppn.
        each = ["-ppn", str(place.each(n))] if library.name == "impi" else []
        hosts = ["-f", place.colons(n), *each] if place.hosts > 1 else []
    return [*place.enter, library.launcher, *hosts, *words, "-n", str(n), *program]


def _overrun(library: Library) -> list[str]:
    return ["--oversubscribe"] if library.name == "openmpi4" else ["--map-by", ":OVERSUBSCRIBE"]


def ours(
    command: Sequence[str],
    library: Library,
    place: Place,
    n: int,
    program: Sequence[str],
    env: Mapping[str, str] = {},
) -> list[str]:
    """The same of mslaunch, which is called by `command`."""
    variables = {**library.ranks_env(place.hosts), **env}
    hosts = ["--hostfile", place.slots(n)] if place.hosts > 1 else []
    words = ["--oversubscribe", *_unbound(place), *_pairs("-x", variables)]
    return [*place.enter, *command, *hosts, *words, "-n", str(n), *program]


def _unbound(place: Place) -> list[str]:
    """Hosts of a cluster share this machine's cores: bound, the first ranks of all would spin on the same one."""
    return ["--bind-to", "none"] if place.hosts > 1 else []


def _pairs(option: str, values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (option, f"{name}={value}")]


def _apart(option: str, values: Iterable[tuple[str, str]]) -> list[str]:
    return [word for name, value in values for word in (option, name, value)]


def environment(**more: str) -> dict[str, str]:
    """Of a launcher: what a user has who has set nothing, and leave for Open MPI to run as root."""
    kept = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "TMPDIR") if name in os.environ}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**kept, **root, "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **more}
