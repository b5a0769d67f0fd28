"""How many ranks each program has, when some hosts cannot be reached before the first attempt.

Without -n the number depends on slots, cores or cpus, which only the hosts may know; then spares are counted instead.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError, UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.recovery.choose_hosts import NoPlaceError
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.plan.hosts.spares import exchange
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.policy_defaults import topology_decides

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mslaunch.datamodel.jobmap import Allocation, JobMap
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.recovery.choose_hosts import PreviousAttempt


def counts_of(jobmap: JobMap, programs: int) -> list[int]:
    """The number of ranks of each program in a map."""
    apps = [placement.app for placement in jobmap.placements]
    return [apps.count(app) for app in range(programs)]


def counts_without(
    request: Request, past: PreviousAttempt, gone: Collection[str], place: Callable[[Allocation], JobMap]
) -> list[int]:
    """The same while the hosts named in `gone` cannot be reached; `place` asks hosts and maps the ranks.

    Raises `NoPlaceError`, or what `place` raises for hosts that cannot be reached either.
    """
    numbers = [app.np or 0 for app in request.apps]
    if all(numbers):
        return numbers
    programs = len(request.apps)
    if not topology_decides(request.policy) and all(node.slots is not None for node in past.allocation.nodes):
        return counts_of(map_job(request, past.allocation, {}), programs)
    missing, ready = past.missing(gone), past.ready(gone)
    others = exchange(past.allocation, gone, ready[: len(missing)])
    if not others.nodes or (len(ready) < len(missing) and not request.min_ranks):
        know = f"{fold([node.name for node in missing])} {'knows' if len(missing) == 1 else 'know'}"
        what = f"no spare host is left, and without -n only {know} how many ranks there are"
        raise NoPlaceError([f"not started: {what}"])
    try:
        return counts_of(place(others), programs)
    except (AllocationError, UsageError) as refused:
        raise NoPlaceError([f"not started: {refused.what}"]) from None
