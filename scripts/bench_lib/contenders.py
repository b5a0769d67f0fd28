"""The launchers: mslaunch as `pip install` leaves it, and the others that this machine has.

mslaunch is installed into an environment of its own, with the newest pip: console scripts of an old pip import `re`,
and an editable install adds a finder to every start.  Users wait for neither.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from bench_lib import BenchError
from bench_lib.timing import clean_environ

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.abspath(os.environ.get("MSLAUNCH_TEST_CACHE") or os.path.join(ROOT, ".cache", "test-venv"))
OURS, MPIRUN, HYDRA, TORCHRUN, MSRUN = "mslaunch", "mpirun", "mpiexec.hydra", "torchrun", "msrun"
BASE = "base"  #: mslaunch of another checkout
SSH, SSHS = "ssh", "ssh, all at once"  #: `ssh` itself: `true` on one host, or a short Python on all
BARE = "python -c pass"  #: of the environment that mslaunch is installed in


class Launcher(NamedTuple):
    """`path` to it, and what its --version says."""

    name: str
    path: str
    version: str


def find_all(python: str) -> dict[str, Launcher]:
    """The launchers that are installed, mslaunch first."""
    found = {OURS: Launcher(OURS, install(python), "this tree")}
    mindspore = os.path.dirname(os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", ""))
    for name, path in (
        (MPIRUN, shutil.which("mpirun.openmpi") or shutil.which("mpirun")),
        (HYDRA, os.environ.get("MSLAUNCH_TEST_MPIEXEC") or cached("mpich", HYDRA) or shutil.which(HYDRA)),
        (TORCHRUN, shutil.which(TORCHRUN)),
        (MSRUN, shutil.which(MSRUN, path=mindspore or None) or cached("mindspore", MSRUN)),
    ):
        if path and (name != MPIRUN or _is_open_mpi(path)):
            found[name] = Launcher(name, path, version_of(path) if name in (MPIRUN, HYDRA) else "")
    return found


def find_both(python: str, checkout: str) -> dict[str, Launcher]:
    """mslaunch of this tree, and of another checkout."""
    if not os.path.isfile(os.path.join(checkout, "mslaunch", "__init__.py")):
        raise BenchError(f"{checkout} is no checkout of mslaunch")
    git = ["git", "-C", checkout, "log", "-1", "--format=%h"]
    commit = subprocess.run(git, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    return {
        OURS: Launcher(OURS, install(python), "this tree"),
        BASE: Launcher(BASE, install(python, checkout), commit or checkout),
    }


def cached(environment: str, program: str) -> str | None:
    """The environments that scripts/test has installed."""
    paths = glob.glob(os.path.join(CACHE, f"{environment}-*", "bin", program))
    return max(paths, key=os.path.getmtime, default=None)


def version_of(path: str) -> str:
    """The first word with a digit in front of what --version says."""
    return next((word for word in _said(path).split() if word[0].isdigit()), "")


def _is_open_mpi(path: str) -> bool:
    return any(name in _said(path) for name in ("Open MPI", "OpenRTE"))  # it depends on the name it is called by


def _said(path: str) -> str:
    try:
        return subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def local(launcher: Launcher, n: int, program: Sequence[str]) -> list[str]:
    """The command that starts `n` ranks of `program` here."""
    options = {
        OURS: ["--oversubscribe", "-n", str(n)],
        BASE: ["--oversubscribe", "-n", str(n)],
        MPIRUN: ["--allow-run-as-root", "--oversubscribe", "-n", str(n)],
        HYDRA: ["-n", str(n)],
        TORCHRUN: ["--standalone", "--nproc-per-node", str(n)],
        MSRUN: [f"--worker_num={n}", f"--local_worker_num={n}", "--join=True", "--master_port=8765"],
    }
    return [launcher.path, *options[launcher.name], *program]


def bare(launcher: Launcher) -> dict[str, list[str]]:
    """The bare interpreter of an mslaunch: what no launcher in Python can be faster than."""
    return {BARE: [os.path.join(os.path.dirname(launcher.path), "python"), "-c", "pass"]}


def install(python: str, root: str = ROOT) -> str:
    """The path of an installed mslaunch, from the tree at `root` as it is now."""
    which = [os.path.realpath(python), CACHE] + [os.path.realpath(root)] * (root != ROOT)
    place = os.path.join(CACHE, "bench-" + _digest(which, [os.path.join(root, "pyproject.toml")]))
    sources = glob.glob(os.path.join(root, "mslaunch", "**", "*.py"), recursive=True)
    stamp, fresh = os.path.join(place, "sources"), _digest([], sources)
    pip = [os.path.join(place, "bin", "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    if not os.path.exists(stamp):
        print(f"making {place}", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
        _run([python, "-m", "venv", place])
        _run([*pip, "--upgrade", "pip", "setuptools", "wheel"])
    if not os.path.exists(stamp) or _read(stamp) != fresh:
        with tempfile.TemporaryDirectory() as copy:  # a build leaves files in the tree it builds
            for name in ("mslaunch", "docs", "scripts/build_lib", "pyproject.toml", "README.md", "LICENSE"):
                _copy(os.path.join(root, name), os.path.join(copy, name))
            _run([*pip, "--no-build-isolation", "--compile", copy])  # with what it depends on
            _run([*pip, "--no-build-isolation", "--compile", "--no-deps", "--force-reinstall", copy])
        with open(stamp, "w", encoding="ascii") as file:
            file.write(fresh)
    return os.path.join(place, "bin", "mslaunch")


def _copy(source: str, target: str) -> None:
    """A file or a folder, if an older checkout has it."""
    if os.path.isdir(source):
        shutil.copytree(source, target)
    elif os.path.exists(source):
        shutil.copy(source, target)


def _digest(words: Sequence[str], files: Sequence[str]) -> str:
    total = hashlib.sha256(repr(words).encode())
    for name in sorted(files):
        with open(name, "rb") as file:
            total.update(name.encode() + b"\0" + file.read())
    return total.hexdigest()[:12]


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, env=clean_environ(), stdin=subprocess.DEVNULL, timeout=900, check=False)
    if done.returncode:
        raise BenchError(f"`{' '.join(command)}` failed")
