"""Fixtures: `start` and `run` the command; after each test no process of its jobs may be left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gathered import Hosts
from launching import Job, Result, environment


@pytest.fixture
def start(tmp_path: Any) -> Iterator[Callable[..., Job]]:
    """Start the command: `start(words, env={...}, stdin=...)`; fails the test if something outlives it."""
    jobs: list[Job] = []

    def begin(words: list[str], env: dict[str, str] | None = None, **how: Any) -> Job:
        jobs.append(Job(words, environment(**(env or {})), **{"cwd": tmp_path, **how}))
        return jobs[-1]

    yield begin
    try:
        for job in jobs:
            job.wait_gone()
    finally:
        for job in jobs:
            job.destroy()


@pytest.fixture
def run(start: Callable[..., Job]) -> Callable[..., Result]:
    """Run the command to its end."""
    return lambda words, bound=30.0, **how: start(words, **how).end(bound)


@pytest.fixture
def hosts(tmp_path: Any) -> Iterator[Hosts]:
    """Commands that meet; what they have left is ended."""
    made = Hosts(tmp_path)
    yield made
    for job in made.jobs:
        job.destroy()
