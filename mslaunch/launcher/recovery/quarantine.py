"""Hosts that have failed twice within ten minutes: they are not taken again while another spare is there.

A host fails if its agent is lost or ended, or if a signal that tells of a fault has ended the rank that failed first
there: for want of memory, or by a device or a library that is broken on this host alone.  An exit code does not count,
since the program may give it anywhere, nor does a signal by which somebody ends a program.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher.job_failure import BY_HOST, EXITED
from mslaunch.plan.hosts.choose_spares import missing, ready_spares

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mslaunch.datamodel.jobmap import Allocation
    from mslaunch.launcher.job.job_state import JobState

FAILURES = 2
WITHIN = 600.0  #: seconds
_FAULTS = (signal.SIGKILL, signal.SIGBUS, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)


def failed_hosts(state: JobState) -> set[str]:
    """The hosts that have failed in an attempt which has ended."""
    found, cause = set(state.table.lost_hosts), state.failure
    if cause is None or cause.node is None:
        return found
    by_fault = cause.kind == EXITED and cause.facts["status"].signal in _FAULTS
    return found | ({state.table.hosts[cause.node]} if by_fault or cause.kind in BY_HOST else set())


class Quarantine:
    """The failures of the hosts of one launch; `hosts` are those that are in quarantine, until its end."""

    def __init__(self) -> None:
        self.hosts: list[str] = []  #: by name, in the order in which they got there
        self._failed: dict[str, float] = {}  # when each has failed last

    def note(self, hosts: Collection[str], now: float) -> None:
        """These have failed now, in seconds of a clock that goes steadily."""
        for host in sorted(hosts):
            before = self._failed.get(host)
            self._failed[host] = now
            if before is not None and now - before <= WITHIN and host not in self.hosts:
                self.hosts.append(host)

    def avoided(self, allocation: Allocation, gone: Collection[str]) -> list[list[str]]:
        """Which hosts to do without besides `gone`, which cannot be reached: the best choice first, then the next.

        At first as many hosts as there are spares for, the latest to fail, and spares in quarantine; then these alone;
        at last none, since a host that may fail again is better than no other attempt.
        """
        spares = [node.name for node in allocation.spares if node.name in self.hosts and node.name not in gone]
        here = {node.name for node in allocation.nodes} - set(gone)
        left = len(ready_spares(allocation, {*gone, *spares})) - len(missing(allocation, gone))
        out = [host for host in reversed(self.hosts) if host in here][: max(0, left)]
        choices: Sequence[list[str]] = ([*out, *spares], spares, [])
        return [choice for at, choice in enumerate(choices) if choice not in choices[:at]]
