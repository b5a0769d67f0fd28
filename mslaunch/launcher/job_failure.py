"""The cause of a failed job as a record: a kind, and the facts from which `messages` makes the sentences."""

from __future__ import annotations

from mslaunch.errors import EXIT_USAGE, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# of one rank; the facts of each kind are those that its maker in `job.failure_causes` gives
EXITED = "exited"
MISSING = "missing"
ABORTED = "aborted"
PROTOCOL = "protocol"
SINGLETON = "singleton"
NOT_RESTARTED = "not restarted"
NOT_READY = "not ready"
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
HUNG = "hung"
INTERRUPTED = "interrupted"
UNREAD = "unread"
TOO_LARGE = "too large"
ELSEWHERE = "elsewhere"  # in the part that a command on another host has started
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


def no_room(short: Mapping[str, Mapping[int, int]], counts: Sequence[int]) -> JobFailure:
    """Hosts cannot start all of their ranks: what is too little -> nodes, and how many ranks each of these can start.

    `counts` are the ranks of each node.
    """
    errors: dict[str, tuple[int, ...]] = {}
    for reason, nodes in short.items():
        most, count = min(nodes.values()), max(counts[node] for node in nodes)
        many = counted(count, "rank") if len(nodes) == 1 else f"up to {counted(count, 'rank')} each"
        few = f"only {most}" if most else "none"
        errors[f"{few} of {many} can be started with {reason}"] = tuple(nodes)
    fewest = min(most for nodes in short.values() for most in nodes.values())
    would = f"at most {counted(fewest, 'rank')} on a host would do, or a higher limit there"
    todo = f"nothing was started; {would if fewest else 'take other hosts, or change what is missing there'}"
    return JobFailure(NOT_STARTED, {"errors": errors, "todo": todo}, next(iter(next(iter(errors.values())))))
