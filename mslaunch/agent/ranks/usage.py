"""The time and memory that the ranks of this node take, for --top: of each rank all processes of its session."""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.processes import numbers, stat_fields
from mslaunch.protocol import frames
from mslaunch.protocol.rank_usage import RankUsage, pack_usage, unpack_pids

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_SESSION, _USER, _SYSTEM, _RESIDENT = 3, 11, 12, 21  # of proc(5), /proc/PID/stat, counted from the state


def handle(context: Any, frame: frames.Frame) -> None:
    """USE; `context` is the `AgentContext`, whose module imports from this folder."""
    context.link.send(frames.USED, frames.NO_RANK, pack_usage(usage_of(unpack_pids(frame.payload))))


def usage_of(pids: Iterable[int]) -> dict[int, RankUsage]:
    """By process id, for those that live or have left something; a child that was waited for is not counted."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = {pid: [0, 0, 0] for pid in pids}
    for pid in numbers():
        fields = stat_fields(pid)
        sums = found.get(int(fields[_SESSION])) if len(fields) > _RESIDENT else None
        if sums is not None:
            sums[0] += (int(fields[_USER]) + int(fields[_SYSTEM])) * 1000 // ticks
            sums[1] += int(fields[_RESIDENT]) * page
            sums[2] += 1
    return {pid: RankUsage(*sums) for pid, sums in found.items() if sums[2]}
