"""Makes the `JobFailure` of each thing that goes wrong.

An exit code of 0 can be a failure, where others wait in MPI for the rank that ended with it, and so can MPI_Abort with
0: the job's code is 1 then.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, EXIT_TIMEOUT, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import job_failure
from mslaunch.launcher.job_failure import JobFailure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mslaunch.errors import LaunchError
    from mslaunch.launcher.job import events
    from mslaunch.launcher.job.rank_state import RankState
    from mslaunch.launcher.mpi.mpi_frames import Aborted, CameAlone


def _of_rank(kind: str, rank: RankState, code: int, **facts: Any) -> JobFailure:
    return JobFailure(kind, {"restarts": rank.restarts, "status": rank.status, **facts}, rank.node, rank.rank, code)


def exited(rank: RankState, in_mpi: bool = False) -> JobFailure:
    """The process of a rank ended badly; `in_mpi`: for this alone it is not restarted."""
    return _of_rank(job_failure.EXITED, rank, rank.status.shell_code, in_mpi=in_mpi)


def missing(rank: RankState, who: str = "mpi") -> JobFailure:
    """A rank has ended while `who` (see `RankState.waited_for_by`) waits for it."""
    code = rank.status.shell_code or EXIT_USAGE
    return _of_rank(job_failure.MISSING, rank, code, who=who, in_mpi=rank.in_mpi, used_mpi=rank.used_mpi)


def aborted(rank: RankState, event: Aborted) -> JobFailure:
    """A rank called MPI_Abort, or (`broken`) violates the protocol of MPI's start-up."""
    if event.broken:
        return _of_rank(job_failure.PROTOCOL, rank, event.code or EXIT_USAGE, text=event.text)
    code = event.code & 0xFF or EXIT_USAGE
    return _of_rank(job_failure.ABORTED, rank, code, mpi_code=event.code, text=event.text)


def singleton(rank: RankState, event: CameAlone) -> JobFailure:
    """A rank came up as an MPI singleton.  Its output is not quoted: the program did nothing wrong."""
    facts = {"rank": rank.rank, "library": event.library, "family": event.family, "offered": event.offered}
    return JobFailure(job_failure.SINGLETON, facts, rank.node)


def not_restarted(rank: RankState, error: str) -> JobFailure:
    """A rank that had failed could not be started again."""
    return _of_rank(job_failure.NOT_RESTARTED, rank, rank.status.shell_code, error=error)


def not_started(event: events.Exited, before: JobFailure | None) -> JobFailure:
    """A program cannot be started on a host; `before` has the hosts where this is known already."""
    error, node = event.status.error, event.node
    if before is None or before.kind != job_failure.NOT_STARTED:
        facts = {"errors": {error: (node,)}, "todo": event.status.todo}
        return JobFailure(job_failure.NOT_STARTED, facts, node, None, event.status.code or EXIT_USAGE)
    errors = before.facts["errors"]
    nodes = errors.get(error, ())
    if node in nodes:
        return before
    return before._replace(facts={**before.facts, "errors": {**errors, error: (*nodes, node)}})


def service_ended(member: RankState, event: events.Exited, begun: bool) -> JobFailure:
    """A service ended while it was needed, or (not `begun`) before ranks could need it; or it could not be started."""
    quoted = None if event.status.error and member.pid is None else member.rank  # no process, no output
    facts = {"number": member.rank, "restarts": member.restarts, "status": event.status, "begun": begun}
    return JobFailure(job_failure.SERVICE_ENDED, facts, member.node, quoted)


def service_lost(numbers: Sequence[int], node: int, error: LaunchError | None) -> JobFailure:
    """A host was lost, and ranks elsewhere need the services that ran there."""
    return JobFailure(job_failure.SERVICE_LOST, {"numbers": numbers, "error": error}, node, None, EXIT_LOST)


def no_ports(event: events.Exited) -> JobFailure:
    """The agent of a node could not reserve its ports."""
    return JobFailure(job_failure.NO_PORTS, {"error": event.status.error, "todo": event.status.todo}, event.node)


def host_lost(node: int, error: LaunchError | None, begun: bool) -> JobFailure:
    """A connection ended while ranks ran, or before."""
    kind = job_failure.HOST_LOST if begun else job_failure.AGENT_LOST
    code = EXIT_LOST if begun or error is None else error.code
    return JobFailure(kind, {"error": error}, node, None, code)


def unread() -> JobFailure:
    """Nobody reads standard output.  A program that writes into a broken pipe is ended by SIGPIPE; a job, like this."""
    return JobFailure(job_failure.UNREAD, {})


def timed_out(seconds: float, source: str) -> JobFailure:
    """--timeout."""
    return JobFailure(job_failure.TIMED_OUT, {"seconds": seconds, "source": source}, code=EXIT_TIMEOUT)
