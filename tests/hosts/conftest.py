"""Fixtures: four real hosts for each module, and `start` and `run` on their head; no process may be left anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import Cluster, Job, Result, cluster_of, kill


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """n01 to n04, with sshd at ports 22 and 2222."""
    with cluster_of(4, tmp_path_factory.mktemp("hosts") / "c", "--sshd-option", "Port 2222") as cluster:
        yield cluster


@pytest.fixture
def start(four: Cluster, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start the command on the head: `start("-n", 4, ...)`; fails the test if something outlives it anywhere."""
    jobs: list[Job] = []

    def begin(*words: object, **how: object) -> Job:
        jobs.append(four.start(*words, **{"cwd": tmp_path, **how}))
        return jobs[-1]

    try:
        yield begin
    finally:
        for job in jobs:
            job.destroy()
    try:
        four.wait_quiet(4)
    finally:
        for pid in [
            pid for found in four.all_processes(4).values() for pid in found
        ]:  # so that the next test does not fail for it
            with contextlib.suppress(ProcessLookupError):
                kill(pid)


@pytest.fixture
def run(start: Callable[..., Job]) -> Callable[..., Result]:
    """Run the command to its end."""
    return lambda *words, bound=30.0, **how: start(*words, **how).end(bound)
