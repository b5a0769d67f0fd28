"""Rules: what the user wants to happen when a rank or a service fails, for the state to ask.

Pure, and the only room that knows what --restart, --max-restarts, --enable-recovery and their like say together.  The
surprising thing: with --restart group no rank's failure is survived here, for it is the whole launch that begins anew.
"""

from __future__ import annotations

from mslaunch.errors import UsageError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info

if TYPE_CHECKING:
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.job.rank_state import RankState

RESTARTS = 3  #: how often all ranks are started again where nobody said a number


def most_restarts(request: Request) -> int:
    """How often all ranks may be started again."""
    return (request.max_restarts or RESTARTS) if request.restart == "group" else 0


def check_fewest(request: Request, ranks: int) -> None:
    """Raises `UsageError` if --min-ranks asks for more than there are."""
    if request.min_ranks > ranks:
        raise UsageError(
            f"there {'is' if ranks == 1 else 'are'} only {counted(ranks, 'rank')}",
            f"--min-ranks {request.min_ranks}",
            "lower it",
        )


class RestartPolicy:
    """Those of one launch.

    `abort` False: a rank that exits with a bad code ends nothing.  `recovery`: nor does one that a signal ends.
    `max_restarts` says how often each may be started again, and implies `recovery`.  With `restart` "group" a failure
    ends all, whatever the others say; only the scheduler is started again by itself.
    """

    def __init__(self, abort: bool, recovery: bool, max_restarts: int, restart: str) -> None:
        self.group = restart == "group"
        self.service_limit = 0 if restart == "none" else max_restarts
        self.rank_limit = 0 if self.group else self.service_limit
        self.survives = (recovery or self.rank_limit > 0) and not self.group  # the others go on, whoever fails
        self._abort = abort or self.group

    def ends_job(self, rank: RankState) -> bool:
        """It has failed; do the others fall with it?"""
        return not self.survives and (self._abort or bool(rank.signal))

    def again(self, rank: RankState) -> bool:
        """It has failed; is it started again?"""
        return rank.restarts < self.rank_limit and rank.left and not rank.world.spawned

    def service_again(self, member: RankState) -> bool:
        """It has failed, or could not be started; is it started again?

        Some lose what they knew; to others, ranks tell it once more.
        """
        return service_info(member.rank).restarts and member.pid is not None and member.restarts < self.service_limit
