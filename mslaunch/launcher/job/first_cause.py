"""The cause of a job's failure: records of what goes wrong, and which failure of several decides the exit code.

An exit code of 0 can be a failure: others wait for ever for a rank that ends between MPI_Init and MPI_Finalize, or that
never calls MPI_Init although they did.  The job's code is 1 then, as it is after MPI_Abort with 0.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import job_failure
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.launcher.mpi.mpi_frames import CameAlone, Joined, Left, Stranded

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.launcher.job import events
    from mslaunch.launcher.job.rank_table import RankState
    from mslaunch.launcher.job.restart_policy import RestartPolicy

_SIGTERM = 15


class FirstCause:
    """The first failure of one job, and what follows from it."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.failure: JobFailure | None = None
        self.overdue: JobFailure | None = None  # it will end the job, once the stacks that are wanted have come
        self.stopped = False  # somebody wants no more of this job: Ctrl-C, --timeout, a reader that has gone

    @property
    def held(self) -> bool:
        """A failure of ranks or hosts ends the job soon (--stacks-on failure): those that follow are victims."""
        return self.overdue is not None and self.overdue.kind not in (job_failure.TIMED_OUT, job_failure.HUNG)

    def note(self, failure: JobFailure) -> None:
        """A failure that need not end the job."""
        self.failure = self.failure or failure

    def settle(self, failure: JobFailure) -> None:
        """The failure that ends the job replaces those that did not."""
        self.failure = self.overdue or failure

    def replace(self, failure: JobFailure, *ranks: RankState) -> None:
        """`failure`, of `ranks`, replaces that of an abort which was its consequence.

        A library that sees a connection closed calls MPI_Abort, and may be heard of before the host that is the reason.
        """
        by_abort = self.failure is not None and self.failure.kind == job_failure.ABORTED
        if by_abort and not any(rank.aborted for rank in ranks):
            self.failure = failure
            self.overdue = self.overdue and failure

    def replace_by_system(self, failure: JobFailure) -> None:
        """`failure`, the end of the job by its resource manager, replaces what SIGTERM from there has done."""
        before = self.failure
        ended = before is not None and before.kind == job_failure.EXITED and before.facts["status"].signal == _SIGTERM
        if before is None or ended or before.kind == job_failure.AGENT_TERMINATED:
            self.failure = failure

    def replace_by_end(self, rank: RankState) -> None:
        """The same for a rank that has ended by itself while others aborted."""
        if not (rank.status.asked or rank.world.failed) and (rank.in_mpi or rank.status.signal):
            self.replace(exited(rank) if rank.status.shell_code else missing(rank, "others"), rank)

    def not_started(self, event: events.Exited) -> JobFailure:
        """A program cannot be started on a host: one failure, which names all such hosts."""
        before, status = self.failure, event.status
        if before is None or before.kind != job_failure.NOT_STARTED:
            facts = {"errors": {status.error: (event.node,)}, "todo": status.todo}
            return JobFailure(job_failure.NOT_STARTED, facts, event.node, None, status.code or EXIT_USAGE)
        errors = before.facts["errors"]
        nodes = tuple(dict.fromkeys((*errors.get(status.error, ()), event.node)))
        self.failure = before._replace(facts={**before.facts, "errors": {**errors, status.error: nodes}})
        return self.failure

    def restartable(self, begun: bool) -> bool:
        """With --restart group: another attempt may end otherwise.

        It cannot if somebody ended the job, or if programs cannot be started at all; `begun`: ranks were started.
        """
        failure = self.failure
        if failure is None or self.stopped or not self._policy.group:
            return False
        if failure.kind in (job_failure.ELSEWHERE, job_failure.HUNG):
            return bool(failure.facts["again"])
        return failure.kind in job_failure.BY_HOST or (failure.rank is not None and begun)


# --- records of failures


def of_rank(kind: str, rank: RankState, code: int, **facts: Any) -> JobFailure:
    """A failure of one rank, whose last output is quoted."""
    return JobFailure(kind, {"restarts": rank.restarts, "status": rank.status, **facts}, rank.node, rank.rank, code)


def exited(rank: RankState, in_mpi: bool = False) -> JobFailure:
    """The process of a rank ended badly; `in_mpi`: for this alone it is not restarted."""
    return of_rank(job_failure.EXITED, rank, rank.status.shell_code, in_mpi=in_mpi)


def missing(rank: RankState, who: str = "mpi") -> JobFailure:
    """A rank has ended while `who` (see `RankState.waited_for_by`) waits for it."""
    code = rank.status.shell_code or EXIT_USAGE
    return of_rank(job_failure.MISSING, rank, code, who=who, in_mpi=rank.in_mpi, used_mpi=rank.used_mpi)


def mpi_failure(event: Any, rank: RankState) -> JobFailure | None:
    """Record an event of `mpi_frames.OF_RANK` in `rank`; the failure that it means, if any.

    A rank that ended well can become a failure here, when another one calls MPI_Init.
    """
    if isinstance(event, Joined):
        rank.in_mpi = True
        rank.use_mpi(True)
        gone = rank.world.missing_rank()
        return missing(gone) if gone else None
    if isinstance(event, Left):
        rank.in_mpi = False
        return None
    if isinstance(event, CameAlone):  # no output is quoted: the program did nothing wrong
        facts = {"rank": rank.rank, "library": event.library, "family": event.family, "offered": event.offered}
        return JobFailure(job_failure.SINGLETON, facts, rank.node)
    if not isinstance(event, Stranded) and event.user:
        return JobFailure(job_failure.INTRUDED, {"user": event.user}, rank.node)
    if isinstance(event, Stranded) or (event.broken and rank.ended):
        return missing(rank)
    if event.broken:
        return of_rank(job_failure.PROTOCOL, rank, event.code or EXIT_USAGE, text=event.text)
    rank.aborted = True
    return of_rank(job_failure.ABORTED, rank, event.code & 0xFF or EXIT_USAGE, mpi_code=event.code, text=event.text)


def service_ended(member: RankState, event: events.Exited, begun: bool) -> JobFailure:
    """A service ended while it was needed, or (not `begun`) before ranks could need it; or it could not be started."""
    quoted = None if event.status.error and member.pid is None else member.rank  # no process, no output
    facts = {"number": member.rank, "restarts": member.restarts, "status": event.status, "begun": begun}
    return JobFailure(job_failure.SERVICE_ENDED, facts, member.node, quoted)


def host_lost(event: events.LinkEnded, begun: bool, here: bool = True) -> JobFailure:
    """A connection ended while ranks ran (`here`: there, too), or before."""
    kind = job_failure.HOST_LOST if begun else job_failure.AGENT_LOST
    code = EXIT_LOST if begun or event.error is None else event.error.code
    return JobFailure(kind, {"error": event.error, "here": here}, event.node, None, code)


def agent_ending(event: events.AgentEnding) -> JobFailure:
    """Somebody ended the agent of a host: a system that goes down, an administrator, a resource manager."""
    return JobFailure(job_failure.AGENT_TERMINATED, {}, event.node, None, EXIT_LOST)
