"""Fixtures: the distributions of this tree, built once, and an environment for each interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from distributions import ROOT, Distributions, build, call


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="session")
def uv() -> str:
    """The installer: a program of the package that pyproject.toml's dev names."""
    path = Path(sys.executable).parent / "uv"
    if not path.exists():
        pytest.skip("NOT TESTED, not installed: uv")
    return str(path)


@pytest.fixture(scope="session")
def installed(uv: str, distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`installed(python)`: a virtual environment of this interpreter with the wheel and its pinned dependencies."""
    made: dict[str, Path] = {}

    def make(python: str) -> Path:
        if python not in made:
            place = tmp_path_factory.mktemp("venv")
            call([uv, "venv", "-q", "--no-project", "--python", python, place])
            install = [uv, "pip", "install", "-q", "--python", place]
            call([*install, "--require-hashes", "-r", ROOT / "tests" / "requirements" / "runtime.txt"])
            call([*install, "--no-deps", distributions.wheel])
            made[python] = place
        return made[python]

    return make
