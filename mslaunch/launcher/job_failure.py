"""The cause of a failed job as a record: a kind, and the facts from which `messages` makes the sentences."""

from __future__ import annotations

from mslaunch.errors import EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# of one rank; the facts of each kind are those that its maker in `job.failure_causes` gives
EXITED = "exited"
MISSING = "missing"
ABORTED = "aborted"
PROTOCOL = "protocol"
SINGLETON = "singleton"
NOT_RESTARTED = "not restarted"
# of hosts and services
INTRUDED = "intruded"
NOT_STARTED = "not started"
NO_PORTS = "no ports"
SERVICE_ENDED = "service ended"
SERVICE_LOST = "service lost"
AGENT_LOST = "agent lost"
HOST_LOST = "host lost"
AGENT_TERMINATED = "agent terminated"
# of the whole job
TIMED_OUT = "timed out"
INTERRUPTED = "interrupted"
UNREAD = "unread"
TOO_LARGE = "too large"
# of a rank that called MPI_Comm_spawn
SPAWN_FAILED = "spawn failed"

#: the loss of a host: with other hosts the job may end well
BY_HOST = (SERVICE_LOST, AGENT_LOST, HOST_LOST, AGENT_TERMINATED)


class JobFailure(NamedTuple):
    """Why a job failed."""

    kind: str
    facts: Mapping[str, Any]  # which, depends on the kind
    node: int | None = None
    rank: int | None = None  # the rank or service whose last output is quoted
    code: int = EXIT_USAGE  # the exit code of the job
