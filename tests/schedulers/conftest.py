"""Fixtures: a real Slurm of four nodes for each module."""

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
