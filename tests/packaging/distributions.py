"""What the tests of packaging share: the source as a release has it, the two distributions, and interpreters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")  # of pyproject.toml, requires-python, to the newest that is tested
BOUND = 240.0
#: what a run of tests or a build leaves in a working tree
LEFT = (".git", ".cache", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")


class Distributions(NamedTuple):
    """The files of one release."""

    sdist: Path
    unpacked: Path  # the source distribution, unpacked
    wheel: Path


def call(words: list[Any], bound: float = BOUND, **how: Any) -> str:
    """Run a program to its end; returns what it printed, and fails with that if the program fails."""
    how.setdefault("env", clean())
    done = subprocess.run(
        [*map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=bound, check=False, **how,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}"
    return done.stdout


def clean(**more: str) -> dict[str, str]:
    """The environment without anything that leads to the source tree, or to an environment."""
    ours = ("PYTHON", "VIRTUAL_ENV", "MSLAUNCH", "UV_PYTHON", "PIPX_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **more}


def build(place: Path) -> Distributions:
    """The source distribution of this tree, and the wheel of that, which is built without a network if we are root."""
    tree = place / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT), symlinks=True)
    frontend = [sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist"]
    call([*frontend, "--sdist", tree])
    sdist = only(place / "dist", "*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(place / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    unpacked = only(place / "unpacked", "*")
    alone = ["unshare", "-n"] if os.geteuid() == 0 and shutil.which("unshare") else []
    call([*alone, *frontend, "--wheel", unpacked])
    return Distributions(sdist, unpacked, only(place / "dist", "*.whl"))


def only(place: Path, pattern: str) -> Path:
    """The one file of this name."""
    (found,) = place.glob(pattern)
    return found


def interpreters() -> dict[str, str]:
    """Version -> the path of an interpreter on this machine; newer ones than `VERSIONS` as well."""
    found: dict[str, str] = {}
    for version in (*VERSIONS, "3.14", "3.15"):
        name = f"python{version}"
        places = [shutil.which(name), f"/usr/bin/{name}", f"/usr/local/bin/{name}", f"/opt/python/{version}/bin/{name}"]
        places += sorted(map(str, (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/{name}")))
        for path in filter(None, places):
            if version not in found and os.path.exists(path) and _is(path, version):
                found[version] = path
    return found


def _is(path: str, version: str) -> bool:
    words = [path, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
    return done.stdout.strip() == version
