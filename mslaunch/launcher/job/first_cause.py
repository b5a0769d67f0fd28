"""The cause of a job's failure: which of its failures decides the exit code, and whether another attempt may help."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import job_failure

if TYPE_CHECKING:
    from mslaunch.launcher.job.rank_state import RankState
    from mslaunch.launcher.job.restart_policy import RestartPolicy
    from mslaunch.launcher.job_failure import JobFailure


class FirstCause:
    """The first failure of one job, and what follows from it."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.failure: JobFailure | None = None
        self.overdue: JobFailure | None = None  # --timeout was reached, but stacks are wanted before the end
        self.stopped = False  # somebody wants no more of this job: Ctrl-C, --timeout, a reader that has gone

    def note(self, failure: JobFailure) -> None:
        """A failure that need not end the job."""
        self.failure = self.failure or failure

    def settle(self, failure: JobFailure) -> None:
        """The failure that ends the job replaces those that did not."""
        self.failure = self.overdue or failure

    def replace(self, failure: JobFailure, *ranks: RankState) -> bool:
        """`failure`, of `ranks`, replaces that of an abort which was its consequence.

        A library that sees a connection closed calls MPI_Abort, and may be heard of before the host that is the reason.
        """
        by_abort = self.failure is not None and self.failure.kind == job_failure.ABORTED
        if not by_abort or any(rank.aborted for rank in ranks):
            return False
        self.failure = failure
        return True

    def restartable(self, begun: bool) -> bool:
        """With --restart group: another attempt may end otherwise.

        It cannot if somebody ended the job, or if programs cannot be started at all; `begun`: ranks were started.
        """
        failure = self.failure
        if failure is None or self.stopped or not self._policy.group:
            return False
        return failure.kind in job_failure.BY_HOST or (failure.rank is not None and begun)
