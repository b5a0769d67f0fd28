"""The `Outcome` of a job that mpirun ran, from mpirun's exit code and its last messages.

mpirun's exit code is that of a rank only if a rank has started; otherwise it is replaced by one of ours.  Open MPI 4.1
does not always say which rank failed.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.datamodel.outcome import Failure, Outcome, RankStatus
from mslaunch.errors import EXIT_LOST, EXIT_UNREACHED, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.messages.closing_report import with_last_words
from mslaunch.launcher.messages.failure_text import ending

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.backends.openmpi.demux import Demux
    from mslaunch.launcher.stdio.output import Output

#: what mpirun says when a daemon is gone: 4.1.4 and 5.0.11, and 5.0.11 when its ssh ends first
_HOST_LOST = ("has lost communication with a remote daemon", "A daemon failed to")


def outcome_of(
    failure: Failure | None, signum: int | None, demux: Demux, output: Output, size: int, seconds: float
) -> Outcome:
    """The outcome; `failure` is that of mpirun in the state of its job, and `signum` the signal that ended it."""
    words = demux.own.decode("utf-8", "replace")
    if failure is None and _lost(words):  # 5.0.11 ends with 0
        failure = Failure("", rank=0, code=EXIT_LOST)
    if failure and failure.rank == 0:
        failure = failure_of_mpirun(failure, signum, words, size, {rank: one.host for rank, one in demux.known.items()})
    failure = with_last_words(failure, output.tail) if failure else None
    started = (demux.known.get(rank) or RankStatus(rank, "") for rank in range(size))
    statuses = tuple(output.with_logs(_ended(status, failure)) for status in started)
    return Outcome(failure.code if failure else 0, statuses, failure, seconds)


def _ended(status: RankStatus, failure: Failure | None) -> RankStatus:
    """The status of a rank, as far as it follows from mpirun's failure."""
    if failure is None:
        return status._replace(code=0)
    if status.rank != failure.rank:
        return status._replace(reason="ended" if status.pid else "not started")
    signum = failure.code - 128 if "was ended by SIG" in failure.what else None
    return status._replace(code=None if signum else failure.code, signal=signum)


def failure_of_mpirun(failure: Failure, signum: int | None, words: str, size: int, hosts: Mapping[int, str]) -> Failure:
    """The failure of the job that follows from the failure of mpirun, by its exit code or a signal.

    `words` are its last messages, `hosts` those of the ranks that have started.
    """
    if signum:
        return Failure(f"Open MPI's mpirun {ending(ExitStatus(None, signum))}", failure.host, code=failure.code)
    if hosts and _lost(words):
        return Failure("Open MPI lost a host while ranks ran there; its words above say which", code=EXIT_LOST)
    if not hosts:
        far = failure.code == EXIT_UNREACHED or "daemon" in words
        what = f"Open MPI started no rank (its mpirun ended with {failure.code})"
        detail = () if words.strip() else ("it does not say why",)
        return Failure(what, code=EXIT_UNREACHED if far else EXIT_USAGE, detail=detail)
    rank = first_failed_rank(words) if size > 1 else 0
    if rank is None or rank not in hosts:
        return Failure(f"a rank ended with exit code {failure.code}; Open MPI did not say which", code=failure.code)
    signum = _number(words, r"exited\s+on\s+signal\s+(\d+)")  # the exit code alone could be the program's own
    return Failure(f"rank {rank} {ending(ExitStatus(failure.code, signum))}", hosts[rank], rank, failure.code)


def _lost(words: str) -> bool:
    return any(known in words for known in _HOST_LOST)


def first_failed_rank(words: str) -> int | None:
    """The rank that mpirun names, as `[[33112,1],1]` or as `process rank 1`."""
    return _number(
        words,
        r"Process name: \[\S+,(\d+)\]",
        r"process rank (\d+) with PID",
        r"MPI_ABORT was invoked on rank (\d+)",
    )


def _number(words: str, *messages: str) -> int | None:
    """The number in the first of these messages that occurs."""
    import re

    found = (re.search(message, words) for message in messages)
    return next((int(match[1]) for match in found if match), None)
