"""Substitutes: links to all hosts of an attempt, or to others in the place of those that cannot be reached.

With --restart group only, at the first attempt and at all that follow: what `attempts` offers is tried, best first,
until a choice has room and all of its hosts answer.  It starts nothing and opens no file.  The surprising thing: in the
first attempt, too, hosts are called before the map is shown or a log is opened, since they decide who is in them.
"""

from __future__ import annotations

import os

from mslaunch.errors import AllocationError, LaunchError, LinkError, UsageError
from mslaunch.launcher.attempts import CALL_AGAIN, Before, choices, no_host
from mslaunch.launcher.connect import UnreachedError
from mslaunch.launcher.here import is_local
from mslaunch.lean import TYPE_CHECKING
from mslaunch.plan.mapping import map_job
from mslaunch.plan.plan import service_node
from mslaunch.plan.policy import topology_decides
from mslaunch.plan.scheduler import as_written, naming_of, scheduler_node
from mslaunch.plan.spares import exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mslaunch.launcher.story import Story
    from mslaunch.model import Allocation, JobMap, Node, Request


class NoPlaceError(Exception):
    """There is no choice left; the lines say why."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(*lines)
        self.lines = lines


class Substitutes:
    """What one launch knows, in all of its attempts, of hosts that do not answer."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._counts: list[int] = []  # how many ranks each program is to have
        self._lost: set[str] = set()  # all hosts that ever were
        self._gone: dict[str, LaunchError] = {}  # those that cannot be reached now, by name

    def meet_first(self, story: Story, notice: Callable[[str], None]) -> None:
        """Places and links for the first attempt; as without --restart if all hosts answer.

        Raises `UnreachedError` if there is no way without those that do not.
        """
        allocation, host = story.named(), ""
        nodes: Sequence[Node] = ()
        try:
            host = _foreseen(self._request, allocation)
            allocation = story.count_cores(allocation)
            jobmap = story.place(self._request, allocation)
            nodes, host, self._counts = jobmap.nodes, _scheduler(story), self._count(jobmap)
            self._meet(story)
        except UnreachedError as error:
            self._instead(story, Before(0, allocation, 0, host), nodes, error, notice)

    def _meet(self, story: Story) -> None:
        """Whoever has begun to get files gets a new agent, and begins anew, if a host is lost then."""
        try:
            story.meet()
        except LinkError as error:
            story.company.disperse()
            raise UnreachedError({error.where: error}, len(story.jobmap.nodes)) from None

    def _count(self, jobmap: JobMap) -> list[int]:
        apps = [placement.app for placement in jobmap.placements]
        return [apps.count(app) for app in range(len(self._request.apps))]

    def _instead(
        self, story: Story, past: Before, nodes: Sequence[Node], error: UnreachedError, notice: Callable[[str], None]
    ) -> None:
        here, ours = _names(past, nodes)
        self._note(error.by_node, ours)
        try:
            if not self._counts:
                self._foresee(story, past, ours)
            changed = self._try_all(story, past._replace(size=sum(self._counts)), here, ours)
        except NoPlaceError as refused:
            notice(refused.lines[0])
            raise UnreachedError(self._gone, error.hosts + len(self._gone) - len(error.by_node)) from None
        for why in self._gone.values():
            notice(str(why))
        if changed:
            notice(changed)

    def _foresee(self, story: Story, past: Before, ours: Collection[str]) -> None:
        """How many ranks there are to be; where only hosts know it, those do that come in the place of others."""
        while not self._counts:
            try:
                self._counts = self._counts_without(story, past)
            except UnreachedError as error:
                self._note(error.by_node, ours)

    def _counts_without(self, story: Story, past: Before) -> list[int]:
        request = self._request
        numbers = [app.np or 0 for app in request.apps]
        if all(numbers):
            return numbers
        if not topology_decides(request.policy) and all(node.slots is not None for node in past.allocation.nodes):
            return self._count(map_job(request, past.allocation, {}))
        missing, ready = past.missing(self._gone), past.ready(self._gone)
        if len(ready) < len(missing) and not request.min_ranks:
            what = f"and without -n only {missing[-1].name} knows how many ranks there are"
            raise NoPlaceError([f"not started: no spare host is left, {what}"])
        others = exchange(past.allocation, self._gone, ready[: len(missing)])
        try:
            return self._count(story.place(request, story.count_cores(others)))
        except (AllocationError, UsageError) as refused:
            raise NoPlaceError([f"not started: {refused.what}"]) from None

    def meet_again(self, story: Story, before: Story) -> str:
        """The same for an attempt that follows on `before`; returns what is different.

        Raises `NoPlaceError`, or `LaunchError` for what is wrong with more than a host.
        """
        past = Before(before.number, before.allocation, len(before.jobmap.placements), _scheduler(before))
        here, ours = _names(past, before.jobmap.nodes)
        self._gone.clear()
        self._lost.update(before.launch.state.lost_hosts)
        return self._try_all(story, past, here, ours)

    def _try_all(self, story: Story, past: Before, here: Mapping[str, Node], ours: Collection[str]) -> str:
        """Links to all hosts of the first choice that has room on hosts which can be reached."""
        while True:
            try:
                self._call_lost(story, [node for name, node in here.items() if name not in self._gone])
                slots = story.count_cores(past.allocation, self._gone)  # of those that are there
                changed = self._take_places(story, past._replace(allocation=slots))
                self._meet(story)
            except UnreachedError as error:
                self._note(error.by_node, ours)
            else:
                return changed

    def _call_lost(self, story: Story, nodes: Sequence[Node]) -> None:
        """Hosts that were lost may be back; they get less time than others."""
        lost = [node for node in nodes if node.name in self._lost]
        if lost:
            story.company.knock(lost, min(self._request.link.timeout, CALL_AGAIN))

    def _take_places(self, story: Story, past: Before) -> str:
        """As the first choice says that has room; returns what is different then."""
        refused: LaunchError | None = None
        for choice in choices(self._request, self._counts, past, frozenset(self._gone)):
            self._call_lost(story, choice.allocation.nodes)
            try:
                jobmap = story.place(choice.request, story.count_cores(choice.allocation))
            except (AllocationError, UsageError) as error:
                refused = refused or error
                continue
            if len(jobmap.placements) == choice.size:
                return choice.changed
        raise NoPlaceError(no_host(self._request, self._counts, past, self._gone, refused))

    def _note(self, gone: Mapping[str, LaunchError], ours: Collection[str]) -> None:
        """These hosts are out for now; raises what is wrong with none of ours."""
        for name, error in gone.items():
            if name not in ours or name in self._gone:
                raise error
        self._gone.update(gone)
        self._lost.update(gone)


def _scheduler(story: Story) -> str:
    """The host of MindSpore's scheduler, if it was named: NAME or USER@NAME."""
    jobmap = story.jobmap
    return as_written(jobmap.nodes[service_node(jobmap)]) if story.request.cluster.host else ""


def _foreseen(request: Request, allocation: Allocation) -> str:
    """The same while nobody has a place yet; names of nodes have no domain, as a rule."""
    host = request.cluster.host
    naming = naming_of(request, is_local, os.uname().nodename)
    return as_written(scheduler_node(host, allocation, naming)) if host else ""


def _names(past: Before, nodes: Sequence[Node]) -> tuple[dict[str, Node], set[str]]:
    """The hosts of an attempt by name; and all names that may be missed: spares, too, and the scheduler's host."""
    here = {node.name: node for node in (*past.allocation.nodes, *nodes)}
    return here, {*here, *(node.name for node in past.allocation.spares), past.scheduler.rpartition("@")[2]}
