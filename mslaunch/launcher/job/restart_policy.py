"""The policy for failures: what --restart, --max-restarts, --enable-recovery and their like say together."""

from __future__ import annotations

from mslaunch.errors import UsageError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks.table import service_info

if TYPE_CHECKING:
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.job.rank_table import RankState

RESTARTS = 3  #: how often all ranks are started again by default
FIRST_DELAY = 1.0  #: seconds, with --max-restart-delay alone
_MOST_DOUBLINGS = 30


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


def check_store(request: Request) -> None:
    """Raises `UsageError` where ranks could not find each other by the key store of --horovod."""
    if not request.horovod:
        return
    option = f"--horovod {request.horovod}"
    if request.cluster.share:
        what = "each of several launchers would serve a store of its own, to its part of the ranks"
        raise UsageError(what, option, "start all ranks by one command, with -H or --hostfile")
    if policy_of(request).rank_limit:
        what = "a rank of Horovod that is started again alone does not find the others, which have met already"
        raise UsageError(what, option, "use --restart group")


def check_shared(request: Request) -> None:
    """Raises `UsageError` for what ranks are to find each other by, if one command could not serve all of them."""
    check_store(request)
    if request.progress_file is not None and request.cluster.share and request.restart == "group":
        what = "each of several commands would judge by itself whether the job gets ahead"
        raise UsageError(what, "--progress-file", "start all hosts with one command, -H or --hostfile")
    if request.env_for:
        from mslaunch.plan.rank_addresses import check_requested

        check_requested(request)


class RestartPolicy(NamedTuple):
    """What happens when a rank or a service of the job fails."""

    abort_on_failure: bool = True  # False: a rank that exits with a bad code does not end the job
    recovery: bool = False  # nor does one that a signal ends
    max_restarts: int = 0  # of each rank; implies recovery
    restart: str = ""  # "group": any failure ends the attempt, and only services are restarted within it
    delay: float = 0.0  # seconds from a failure to the restart
    max_delay: float = 0.0  # up to which that doubles with each failure soon after a start; 0: it does not
    stacks: bool = False  # --stacks-on failure: those of the others are looked at before they are ended

    @property
    def group(self) -> bool:
        """All ranks are restarted together, as another attempt."""
        return self.restart == "group"

    @property
    def service_limit(self) -> int:
        """How often a service may be restarted."""
        return 0 if self.restart == "none" else self.max_restarts

    @property
    def rank_limit(self) -> int:
        """How often each rank may be restarted by itself."""
        return 0 if self.group else self.service_limit

    @property
    def survives(self) -> bool:
        """The others go on, whichever rank fails."""
        return (self.recovery or self.rank_limit > 0) and not self.group

    def is_steady(self, seconds: float) -> bool:
        """Whether what ran for so long is no reason to wait longer than at first."""
        return seconds >= self.max_delay

    def delay_before(self, failures: int) -> float:
        """Seconds from a failure to the restart, where it is the last of so many in a row, each soon after a start."""
        if not self.max_delay:
            return self.delay
        doubled = (self.delay or FIRST_DELAY) * 2.0 ** min(max(failures - 1, 0), _MOST_DOUBLINGS)
        return max(self.delay, min(doubled, self.max_delay))

    def ends_job(self, rank: RankState) -> bool:
        """Whether the failure of this rank ends the job."""
        return not self.survives and (self.abort_on_failure or self.group or bool(rank.status.signal))

    def restarts_rank(self, rank: RankState) -> bool:
        """Whether this rank, which has failed, is restarted."""
        return rank.restarts < self.rank_limit and not rank.in_mpi and not rank.world.spawned

    def restarts_service(self, member: RankState) -> bool:
        """Whether this service, which has failed or could not be started, is restarted."""
        return service_info(member.rank).restarts and member.pid is not None and member.restarts < self.service_limit


DEFAULT = RestartPolicy()


def policy_of(request: Request) -> RestartPolicy:
    """The policy that a request asks for."""
    restarts = most_restarts(request) or request.max_restarts
    delays = request.restart_delay, request.max_restart_delay
    stacks = "failure" in request.stacks_on
    return RestartPolicy(request.abort_on_failure, request.recovery, restarts, request.restart, *delays, stacks)
