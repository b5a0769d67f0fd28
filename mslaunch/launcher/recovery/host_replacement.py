"""Connecting the hosts of an attempt, or others in place of those that cannot be reached (--restart group).

Candidates are tried, best first, until one has room and all of its hosts answer.  This happens before the map is shown
or a log is opened, in the first attempt too, since it decides which hosts are in them.
"""

from __future__ import annotations

import os
import time

from mslaunch.errors import AllocationError, LaunchError, UnreachedError, UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.attempt import is_this_host
from mslaunch.launcher.messages.notices import no_host_text, quarantine_text
from mslaunch.launcher.recovery.quarantine import Quarantine, failed_hosts
from mslaunch.launcher.recovery.restart_candidates import (
    NoPlaceError,
    PreviousAttempt,
    candidates,
    counts_of,
    counts_without,
    may_shrink,
    smaller_candidates,
)
from mslaunch.plan.hosts.choose_spares import exchange, ready_spares
from mslaunch.plan.hosts.host_names import named_node, naming_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Allocation, JobMap, Node
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.attempt import JobAttempt
    from mslaunch.launcher.peers.job_meeting import JobMeeting
    from mslaunch.launcher.recovery.restart_candidates import Candidate

_PROBE_SECONDS = 5.0  #: at most, for a host that was lost


class HostReplacement:
    """What one launch knows, over all of its attempts, about hosts that do not answer."""

    def __init__(self, request: Request, notice: Callable[[str], None]) -> None:
        """`notice` tells the user."""
        self._request = request
        self._notice = notice
        self._counts: list[int] = []  # ranks of each program
        self._lost: set[str] = set()  # all hosts that were ever lost
        self._gone: dict[str, LaunchError] = {}  # those that cannot be reached now, by name
        self._quarantine = Quarantine()
        self._avoided: set[str] = set()  # of those in quarantine, which the user knows to be left out

    def connect_first(self, attempt: JobAttempt) -> None:
        """Place the ranks of the first attempt and connect its agents; as without --restart if all hosts answer.

        Raises `UnreachedError` if there is no way without those that do not.
        """
        request, allocation = self._request, attempt.named_hosts()
        service_node = _service_node(request, allocation)
        nodes: Sequence[Node] = ()
        try:
            allocation = attempt.count_cores(allocation)
            jobmap = attempt.place(request, allocation)
            nodes, self._counts = jobmap.nodes, counts_of(jobmap, len(request.apps))
            attempt.connect()
        except UnreachedError as error:
            past = PreviousAttempt(0, allocation, 0, request.cluster.host, service_node)
            self._replace(attempt, past, nodes, error)

    def _replace(
        self, attempt: JobAttempt, past: PreviousAttempt, nodes: Sequence[Node], error: UnreachedError
    ) -> None:
        here, ours = _names(past, nodes)
        self._note(error.by_node, ours)
        try:
            while not self._counts:
                self._count(attempt, past, ours)
            changed = self._try_all(attempt, past._replace(size=sum(self._counts)), here, ours, lambda _: None)
        except NoPlaceError as refused:
            self._notice(refused.lines[0])
            raise UnreachedError(self._gone, error.hosts + len(self._gone) - len(error.by_node)) from None
        for why in self._gone.values():
            self._notice(str(why))
        if changed:
            self._notice(changed)

    def _count(self, attempt: JobAttempt, past: PreviousAttempt, ours: Collection[str]) -> None:
        """Find out how many ranks there are to be, or which more hosts cannot be reached."""

        def place(allocation: Allocation) -> JobMap:
            return attempt.place(self._request, attempt.count_cores(allocation))

        try:
            self._counts = counts_without(self._request, past, self._gone, place)
        except UnreachedError as error:
            self._note(error.by_node, ours)

    def connect_again(self, attempt: JobAttempt, before: JobAttempt, check: Callable[[JobAttempt], None]) -> str:
        """The same for an attempt that follows on `before`; returns what is different.

        `check` is called once all hosts are connected, and raises `UnreachedError` for those that are of no use.
        Raises `NoPlaceError`, or `LaunchError` for what is wrong with more than a host.
        """
        host = before.request.cluster.host
        node = before.jobmap.nodes[before.jobmap.service_node].name if host else ""
        past = PreviousAttempt(before.number, before.allocation, len(before.jobmap.placements), host, node)
        here, ours = _names(past, before.jobmap.nodes)
        self._gone.clear()
        self._lost.update(before.state.table.lost_hosts)
        self._quarantine.note(failed_hosts(before.state), time.monotonic())
        return self._try_all(attempt, past, here, ours, check)

    def _try_all(
        self,
        attempt: JobAttempt,
        past: PreviousAttempt,
        here: Mapping[str, Node],
        ours: Collection[str],
        check: Callable[[JobAttempt], None],
    ) -> str:
        """Connect all hosts of the first candidate that has room on hosts which can be reached."""
        while True:
            try:
                self._probe_lost(attempt, [node for name, node in here.items() if name not in self._gone])
                slots = attempt.count_cores(past.allocation, self._gone)  # of hosts that can be reached
                changed = self._place(attempt, past._replace(allocation=slots))
                attempt.connect()
                check(attempt)
            except UnreachedError as error:
                self._note(error.by_node, ours)
            else:
                return changed

    def _probe_lost(self, attempt: JobAttempt, nodes: Sequence[Node]) -> None:
        """Hosts that were lost may be back; they get less time than others."""
        lost = [node for node in nodes if node.name in self._lost]
        if lost:
            attempt.pool.probe(lost, min(self._request.link.timeout, _PROBE_SECONDS))

    def _place(self, attempt: JobAttempt, past: PreviousAttempt) -> str:
        """Place the ranks as the first candidate says that has room; returns what is different then."""
        refused: LaunchError | None = None
        for candidate, avoided in self._candidates(attempt, past):
            self._probe_lost(attempt, candidate.allocation.nodes)
            try:
                jobmap = attempt.place(candidate.request, attempt.count_cores(candidate.allocation))
            except (AllocationError, UsageError) as error:
                refused = error if candidate.size < sum(self._counts) else refused or error
                continue
            if len(jobmap.placements) == candidate.size:
                self._tell_avoided(avoided)
                return candidate.changed
        room = self._room(attempt, past)
        raise NoPlaceError(no_host_text(self._request, sum(self._counts), past.number > 0, self._gone, room, refused))

    def _candidates(self, attempt: JobAttempt, past: PreviousAttempt) -> Iterator[tuple[Candidate, Sequence[str]]]:
        """Best first, each with the hosts in quarantine that it does without."""
        request, counts, gone = self._request, self._counts, frozenset(self._gone)
        for avoided in self._quarantine.avoided(past.allocation, gone):
            for candidate in candidates(request, counts, past, gone.union(avoided)):
                yield candidate, avoided
        if may_shrink(request):
            for candidate in smaller_candidates(request, counts, past, gone, self._room(attempt, past)):
                yield candidate, ()

    def _tell_avoided(self, avoided: Sequence[str]) -> None:
        for host in avoided:
            if host not in self._avoided:
                self._avoided.add(host)
                self._notice(quarantine_text(host))

    def _room(self, attempt: JobAttempt, past: PreviousAttempt) -> int:
        """Slots of all hosts that can be reached."""
        rest = exchange(past.allocation, self._gone, ready_spares(past.allocation, self._gone), whole=True)
        return sum(node.slots or 0 for node in attempt.count_cores(rest).nodes)

    def _note(self, gone: Mapping[str, LaunchError], ours: Collection[str]) -> None:
        """These hosts cannot be reached now; raises the error of one that may not be missed."""
        for name, error in gone.items():
            if name not in ours or name in self._gone:
                raise error
        self._gone.update(gone)
        self._lost.update(gone)


class HostsOfPeers:
    """As `HostReplacement`; which hosts there are is decided where the commands meet."""

    def __init__(self, meeting: JobMeeting) -> None:
        self._meeting = meeting

    def connect_first(self, attempt: JobAttempt) -> None:
        """The request of the attempt is that of a command that has met the others."""
        _connect_here(attempt, attempt.request)

    def connect_again(self, attempt: JobAttempt, before: JobAttempt, check: Callable[[JobAttempt], None]) -> str:
        """The same when all have met once more; returns what is different.

        Raises `LaunchError` if too few have come, or somebody wants no other attempt.
        """
        request, changed = self._meeting.again(attempt.number)
        _connect_here(attempt, request)
        check(attempt)
        return changed


def _connect_here(attempt: JobAttempt, request: Request) -> None:
    attempt.place(request, attempt.count_cores(attempt.named_hosts()))
    attempt.connect()


def _service_node(request: Request, allocation: Allocation) -> str:
    """The name of the node that was named for the services, before ranks are placed."""
    host = request.cluster.host
    naming = naming_of(request, is_this_host, os.uname().nodename)
    return named_node(host, allocation, naming).name if host else ""


def _names(past: PreviousAttempt, nodes: Sequence[Node]) -> tuple[dict[str, Node], set[str]]:
    """The hosts of an attempt by name; and the names that may be missed: spares, too, and the services' host."""
    here = {node.name: node for node in (*past.allocation.nodes, *nodes)}
    return here, {*here, *(node.name for node in past.allocation.spares), past.service_node}
