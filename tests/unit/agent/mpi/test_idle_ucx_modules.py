"""UCX's modules for InfiniBand are excluded where there is no such device, unless somebody has configured UCX."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from mslaunch.agent.mpi.idle_ucx_modules import idle_modules
from mslaunch.host.dynamic_linker import Loader
from mslaunch.host.elf import Elf

WITHOUT_IB = {"UCX_MODULES": "^ib,rdmacm"}


class _KnownLibraries:
    """A loader whose libraries need no files."""

    def __init__(self, env: dict[str, str], wdir: str, libraries: list[Elf]) -> None:
        self.env = env
        self.wdir = wdir
        self._libraries = libraries

    def walk(self, start: Elf) -> Iterator[Elf]:
        yield from (start, *self._libraries)


def _library(path: Path) -> Elf:
    return Elf(str(path), 62, path.name, (), (), (), (0, 0))


class UcxHost:
    """A tree that looks like a host with an MPICH that brings UCX along."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"HOME": str(root / "home")}
        self.uct = _library(root / "opt/lib/mpich/libuct.so.0")
        for name in ("cma", "ib", "ib_mlx5", "rdmacm"):
            self.write(f"opt/lib/mpich/ucx/libuct_{name}.so.0")

    def write(self, name: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def said(self, *libraries: Elf) -> dict[str, str]:
        loader = _KnownLibraries(self.environ, str(self.root / "work"), list(libraries))
        return idle_modules(_library(self.root / "opt/lib/libmpi.so.12"), cast(Loader, loader), str(self.root))


@pytest.fixture
def ucx_host(tmp_path: Path) -> UcxHost:
    return UcxHost(tmp_path)


def test_modules_without_a_device_are_excluded_and_others_are_not(ucx_host: UcxHost) -> None:
    assert ucx_host.said(ucx_host.uct) == WITHOUT_IB


def test_a_module_that_is_not_installed_is_not_named(ucx_host: UcxHost) -> None:
    (ucx_host.root / "opt/lib/mpich/ucx/libuct_rdmacm.so.0").unlink()
    assert ucx_host.said(ucx_host.uct) == {"UCX_MODULES": "^ib"}


def test_a_host_with_an_infiniband_device_keeps_all(ucx_host: UcxHost) -> None:
    ucx_host.write("sys/class/infiniband/mlx5_0")
    assert ucx_host.said(ucx_host.uct) == {}


def test_a_library_without_ucx_is_left_alone(ucx_host: UcxHost) -> None:
    assert ucx_host.said() == {}


def test_a_choice_of_the_users_is_kept(ucx_host: UcxHost) -> None:
    ucx_host.environ["UCX_MODULES"] = "all"
    assert ucx_host.said(ucx_host.uct) == {}


@pytest.mark.parametrize("place", ["opt/lib/etc/ucx", "etc/ucx", "home", "work"])
def test_whoever_has_a_file_of_parameters_is_left_alone(ucx_host: UcxHost, place: str) -> None:
    ucx_host.write(f"{place}/ucx.conf")
    assert ucx_host.said(ucx_host.uct) == {}
