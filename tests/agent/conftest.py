"""Fixtures: an agent that has not got its payload yet, and one that has sent HELLO."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import TestedAgent


@pytest.fixture
def boot() -> Iterator[Callable[..., TestedAgent]]:
    """Start agents; each must be gone after the test, once its link is closed."""
    agents: list[TestedAgent] = []

    def start(**how: Any) -> TestedAgent:
        agents.append(TestedAgent(**how))
        return agents[-1]

    yield start
    for agent in agents:
        agent.destroy()


@pytest.fixture
def agent(boot: Callable[..., TestedAgent]) -> TestedAgent:
    """An agent that has sent HELLO."""
    started = boot()
    started.begin()
    return started
