"""The ranks that had printed a Python traceback before --timeout ended the job, for its report.

An exception of one rank leaves the others of MPI waiting, and its own process in MPI_Finalize.
"""

from __future__ import annotations

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.messages.timeout_report import traceback_text

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.datamodel.outcome import Failure
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.job.rank_table import RankTable
    from mslaunch.launcher.stdio.output import Output

_MOST = 4  # ranks that are named
_SEARCHED = 400  # lines that are searched for an exception


def with_tracebacks(
    failure: Failure, request: Request, jobmap: JobMap, table: RankTable, output: Output, began: float
) -> Failure:
    """`failure` by --timeout with these ranks; `began` is the time of the launch.

    Ranks that had ended by themselves, and tracebacks that come of our SIGTERM, do not count.
    """
    end, apps = began + (request.timeout or 0.0), {row.rank: request.apps[row.app] for row in jobmap.placements}
    times = sorted((output.tracebacks or {}).items(), key=lambda item: item[1])
    found = [(rank, when) for rank, when in times if when < end and rank in apps and table.ranks[rank].reason]
    lines = [
        traceback_text(
            table.names.name(rank),
            end - when,
            output.tail(rank, _SEARCHED),
            apps[rank].argv,
            table.ranks[rank].in_mpi,
        )
        for rank, when in found[:_MOST]
    ]
    if len(found) > _MOST:
        lines.append(f"and {counted(len(found) - _MOST, 'more rank')}")
    return failure._replace(detail=(*failure.detail, *lines))
