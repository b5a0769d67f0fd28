"""The job as MPI programs reach it: what may be asked of it, and done to it."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.node_plan import World
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.rank_names import RankNames


class RunningJob(NamedTuple):
    """What a spawn asks of the job, and does to it."""

    hosts: Sequence[str]  # by node; it grows
    names: RankNames
    running: Callable[[], Mapping[str, int]]  # live hosts, and how many ranks each has
    ended: Callable[[], Sequence[int]]  # the ranks that have ended
    ending: Callable[[], bool]
    send: Callable[[int, bytes], None]  # node, frame
    post: Callable[[Any], None]  # an event
    notify: Callable[[str, Mapping[str, Any]], None]  # kind and facts, for the user
    add_agent: Callable[[AgentConnection], int]  # one more node; returns its number
    add_world: Callable[[World, Sequence[int], bool], None]  # node of each rank; whether they call MPI_Init
