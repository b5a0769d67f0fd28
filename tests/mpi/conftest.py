"""Fixtures: each MPI library, each place, and test programs in Python and in C for each of these libraries.

"Two hosts" skips itself without root, and a library that is not installed skips its tests, with a report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stages import LIBRARIES, PROGRAMS, Cluster, Library, Stage, cluster_of, found, libraries, places


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "mpi: needs MPI libraries (scripts/test installs them)")


@pytest.fixture(params=libraries.NAMES)
def library(request: pytest.FixtureRequest) -> Library:
    """Each library, by its name."""
    return found(request.param)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts, n01 and n02."""
    if os.geteuid():
        pytest.skip("needs root")
    if not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"):
        pytest.skip("needs sshd")
    with cluster_of(2, tmp_path_factory.mktemp("pair") / "c") as cluster:
        yield cluster


@pytest.fixture(params=["one node", pytest.param("two hosts", marks=pytest.mark.root)])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """One node, and two hosts."""
    return stage_of(request, tmp_path, 1 if request.param == "one node" else 2)


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """One node."""
    return stage_of(request, tmp_path, 1)


def stage_of(request: pytest.FixtureRequest, directory: Path, hosts: int) -> Stage:
    if hosts == 1:
        return Stage(places.HERE, directory, None)
    cluster = request.getfixturevalue("pair")
    return Stage(places.place_in(str(cluster.directory), hosts, str(directory)), directory, cluster)


@pytest.fixture
def python_of() -> Callable[..., list[str]]:
    """The command line of one of our programs, with a library's interpreter."""
    return lambda library, name, *words: [library.python, str(PROGRAMS / name), *map(str, words)]


@pytest.fixture
def python(library: Library, python_of: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The same, with that of the library that is tested."""
    return lambda name, *words: python_of(library, name, *words)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Library, str], str]:
    """Compile one of our C programs with the library's own compiler, once; its path."""
    folder = tmp_path_factory.mktemp("compiled")

    def build(library: Library, name: str) -> str:
        compiler = library.compiler or LIBRARIES["mpich"].compiler  # Intel's library has MPICH's interface
        path = folder / f"{name}-{library.name}"
        if not path.exists():
            words = [compiler, "-o", str(path), str(PROGRAMS / f"{name}.c")]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
        return str(path)

    return build
