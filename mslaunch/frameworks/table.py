"""Floor 1, frameworks: one file a contract: the variables that a framework looks for in each rank's environment.

Each module has `SCRUB`, the names that a launch around us may have left behind, `job_env`, the variables that all
ranks of a node share, and `rank_env`, those of one rank; all are pure.  They do not know each other; what is here is
their sum.  Sources: the frameworks' own code, and runs of it (docs/frameworks.md).
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks import mindspore, openmpi, torch
from mslaunch.frameworks.rank_info import ProgramInfo, RankInfo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_ALL = (openmpi, torch, mindspore)

#: what must not be inherited from a launch around this one
SCRUB: tuple[str, ...] = tuple(name for framework in _ALL for name in framework.SCRUB)
#: "NAME=value" for ranks that have no value of their own
DEFAULTS = (*openmpi.DEFAULTS, *mindspore.DEFAULTS)


def job_env(place: RankInfo) -> list[str]:
    """ "NAME=value" for all ranks of a node; `place` is that of any of them."""
    return [f"{name}={value}" for framework in _those_of(place) for name, value in framework.job_env(place).items()]


def app_env(program: ProgramInfo) -> list[str]:
    """ "NAME=value" for all ranks of a program; only Open MPI tells them about it."""
    return [f"{name}={value}" for name, value in openmpi.app_env(program).items()]


def rank_env(place: RankInfo) -> list[str]:
    """ "NAME=value" for one rank."""
    return [f"{name}={value}" for framework in _those_of(place) for name, value in framework.rank_env(place).items()]


def _those_of(place: RankInfo) -> Iterable[Any]:
    """In MindSpore's dry run, Open MPI's numbers would be taken for those of the rank that is simulated."""
    return (torch, mindspore) if place.simulated else _ALL


__all__ = ["DEFAULTS", "SCRUB", "ProgramInfo", "RankInfo", "app_env", "job_env", "rank_env"]
