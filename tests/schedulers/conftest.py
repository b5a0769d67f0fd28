"""Fixtures: a real Slurm of four nodes for each module, and a real Grid Engine of four hosts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from batch_systems import BatchSystem, up


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchSystem]:
    """n01 to n04, and head, a login node."""
    with up("slurm", 4, tmp_path_factory.mktemp("slurm")) as system:
        yield system


@pytest.fixture
def slurm(four: BatchSystem) -> BatchSystem:
    """The same, with an empty directory for work."""
    shutil.rmtree(four.work)
    four.work.mkdir()
    return four


@pytest.fixture(scope="session")
def grid_of_four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchSystem]:
    """A Grid Engine: n01 to n04 and head, from where jobs are submitted.

    A job keeps its slots for some seconds after its end, so the hosts have more of them than the tests need.
    """
    with up("gridengine", 4, tmp_path_factory.mktemp("gridengine"), "--cpus", "100") as system:
        yield system


@pytest.fixture
def grid(grid_of_four: BatchSystem) -> BatchSystem:
    """The same, with a directory for work of its own."""
    return grid_of_four.elsewhere()
