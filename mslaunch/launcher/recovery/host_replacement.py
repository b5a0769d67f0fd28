"""Substitutes: links to all hosts of an attempt, or to others in the place of those that cannot be reached.

With --restart group only, at the first attempt and at all that follow: what `attempts` offers is tried, best first,
until a choice has room and all of its hosts answer.  It starts nothing and opens no file.  The surprising thing: in the
first attempt, too, hosts are called before the map is shown or a log is opened, since they decide who is in them.
"""

from __future__ import annotations

import os

from mslaunch.errors import AllocationError, LaunchError, UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.own_names import is_local
from mslaunch.launcher.agents.start_agents import UnreachedError
from mslaunch.launcher.recovery.next_attempt import CALL_AGAIN, PreviousAttempt, choices, fewer, may_shrink, no_host
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.plan.hosts.service_host import named_node, naming_of
from mslaunch.plan.hosts.spares import exchange
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.policy_defaults import topology_decides
from mslaunch.plan.node_plans import service_node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mslaunch.datamodel.hosts import Allocation, Node
    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.attempt import JobAttempt
    from mslaunch.launcher.recovery.next_attempt import Candidate


class NoPlaceError(Exception):
    """There is no choice left; the lines say why."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(*lines)
        self.lines = lines


class HostReplacement:
    """What one launch knows, in all of its attempts, of hosts that do not answer."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._counts: list[int] = []  # how many ranks each program is to have
        self._lost: set[str] = set()  # all hosts that ever were
        self._gone: dict[str, LaunchError] = {}  # those that cannot be reached now, by name

    def meet_first(self, attempt: JobAttempt, notice: Callable[[str], None]) -> None:
        """Places and links for the first attempt; as without --restart if all hosts answer.

        Raises `UnreachedError` if there is no way without those that do not.
        """
        allocation, host = attempt.named(), self._request.cluster.host
        node = _scheduler_node(self._request, allocation)
        nodes: Sequence[Node] = ()
        try:
            allocation = attempt.count_cores(allocation)
            jobmap = attempt.place(self._request, allocation)
            nodes, self._counts = jobmap.nodes, self._count(jobmap)
            attempt.meet()
        except UnreachedError as error:
            self._instead(attempt, PreviousAttempt(0, allocation, 0, host, node), nodes, error, notice)

    def _count(self, jobmap: JobMap) -> list[int]:
        apps = [placement.app for placement in jobmap.placements]
        return [apps.count(app) for app in range(len(self._request.apps))]

    def _instead(
        self,
        attempt: JobAttempt,
        past: PreviousAttempt,
        nodes: Sequence[Node],
        error: UnreachedError,
        notice: Callable[[str], None],
    ) -> None:
        here, ours = _names(past, nodes)
        self._note(error.by_node, ours)
        try:
            if not self._counts:
                self._foresee(attempt, past, ours)
            changed = self._try_all(attempt, past._replace(size=sum(self._counts)), here, ours)
        except NoPlaceError as refused:
            notice(refused.lines[0])
            raise UnreachedError(self._gone, error.hosts + len(self._gone) - len(error.by_node)) from None
        for why in self._gone.values():
            notice(str(why))
        if changed:
            notice(changed)

    def _foresee(self, attempt: JobAttempt, past: PreviousAttempt, ours: Collection[str]) -> None:
        """How many ranks there are to be; where only hosts know it, those do that come in the place of others."""
        while not self._counts:
            try:
                self._counts = self._counts_without(attempt, past)
            except UnreachedError as error:
                self._note(error.by_node, ours)

    def _counts_without(self, attempt: JobAttempt, past: PreviousAttempt) -> list[int]:
        request = self._request
        numbers = [app.np or 0 for app in request.apps]
        if all(numbers):
            return numbers
        if not topology_decides(request.policy) and all(node.slots is not None for node in past.allocation.nodes):
            return self._count(map_job(request, past.allocation, {}))
        missing, ready = past.missing(self._gone), past.ready(self._gone)
        others = exchange(past.allocation, self._gone, ready[: len(missing)])
        if not others.nodes or (len(ready) < len(missing) and not request.min_ranks):
            know = f"{fold([node.name for node in missing])} {'knows' if len(missing) == 1 else 'know'}"
            what = f"no spare host is left, and without -n only {know} how many ranks there are"
            raise NoPlaceError([f"not started: {what}"])
        try:
            return self._count(attempt.place(request, attempt.count_cores(others)))
        except (AllocationError, UsageError) as refused:
            raise NoPlaceError([f"not started: {refused.what}"]) from None

    def meet_again(self, attempt: JobAttempt, before: JobAttempt) -> str:
        """The same for an attempt that follows on `before`; returns what is different.

        Raises `NoPlaceError`, or `LaunchError` for what is wrong with more than a host.
        """
        host = before.request.cluster.host
        node = before.jobmap.nodes[service_node(before.jobmap)].name if host else ""
        past = PreviousAttempt(before.number, before.allocation, len(before.jobmap.placements), host, node)
        here, ours = _names(past, before.jobmap.nodes)
        self._gone.clear()
        self._lost.update(before.launch.state.lost_hosts)
        return self._try_all(attempt, past, here, ours)

    def _try_all(
        self, attempt: JobAttempt, past: PreviousAttempt, here: Mapping[str, Node], ours: Collection[str]
    ) -> str:
        """Links to all hosts of the first choice that has room on hosts which can be reached."""
        while True:
            try:
                self._call_lost(attempt, [node for name, node in here.items() if name not in self._gone])
                slots = attempt.count_cores(past.allocation, self._gone)  # of those that are there
                changed = self._take_places(attempt, past._replace(allocation=slots))
                attempt.meet()
            except UnreachedError as error:
                self._note(error.by_node, ours)
            else:
                return changed

    def _call_lost(self, attempt: JobAttempt, nodes: Sequence[Node]) -> None:
        """Hosts that were lost may be back; they get less time than others."""
        lost = [node for node in nodes if node.name in self._lost]
        if lost:
            attempt.company.probe(lost, min(self._request.link.timeout, CALL_AGAIN))

    def _take_places(self, attempt: JobAttempt, past: PreviousAttempt) -> str:
        """As the first choice says that has room; returns what is different then."""
        refused: LaunchError | None = None
        for choice in self._choices(attempt, past):
            self._call_lost(attempt, choice.allocation.nodes)
            try:
                jobmap = attempt.place(choice.request, attempt.count_cores(choice.allocation))
            except (AllocationError, UsageError) as error:
                refused = error if choice.size < sum(self._counts) else refused or error
                continue
            if len(jobmap.placements) == choice.size:
                return choice.changed
        room = self._room(attempt, past)
        raise NoPlaceError(no_host(self._request, self._counts, past, self._gone, room, refused))

    def _choices(self, attempt: JobAttempt, past: PreviousAttempt) -> Iterator[Candidate]:
        request, counts, gone = self._request, self._counts, frozenset(self._gone)
        yield from choices(request, counts, past, gone)
        if may_shrink(request):
            yield from fewer(request, counts, past, gone, self._room(attempt, past))

    def _room(self, attempt: JobAttempt, past: PreviousAttempt) -> int:
        """Slots of all that can be reached."""
        rest = exchange(past.allocation, self._gone, past.ready(self._gone), whole=True)
        return sum(node.slots or 0 for node in attempt.count_cores(rest).nodes)

    def _note(self, gone: Mapping[str, LaunchError], ours: Collection[str]) -> None:
        """These hosts are out for now; raises what is wrong with none of ours."""
        for name, error in gone.items():
            if name not in ours or name in self._gone:
                raise error
        self._gone.update(gone)
        self._lost.update(gone)


def _scheduler_node(request: Request, allocation: Allocation) -> str:
    """The name of the node that was named for MindSpore's scheduler, while nobody has a place yet."""
    host = request.cluster.host
    naming = naming_of(request, is_local, os.uname().nodename)
    return named_node(host, allocation, naming).name if host else ""


def _names(past: PreviousAttempt, nodes: Sequence[Node]) -> tuple[dict[str, Node], set[str]]:
    """The hosts of an attempt by name; and all names that may be missed: spares, too, and the scheduler's host."""
    here = {node.name: node for node in (*past.allocation.nodes, *nodes)}
    return here, {*here, *(node.name for node in past.allocation.spares), past.scheduler_node}
