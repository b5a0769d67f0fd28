"""Fixtures: networks for three pods a module; what a test has started in them ends with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pods import Pods, pods_on


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """Three hosts without pods."""
    with pods_on(3, tmp_path_factory.mktemp("pods")) as made:
        yield made


@pytest.fixture(autouse=True)
def _ended(pods: Pods) -> Iterator[None]:
    before = pods.running
    yield
    pods.destroy(before)
