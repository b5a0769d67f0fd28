"""What the next attempt of a job may be made of: hosts, spares and the number of ranks, best first.

Pure: no host is connected and no rank mapped.  Hosts that were left out are candidates again after the next failure,
like spares, so a job that has shrunk may grow.  Without -n, the number of ranks depends on slots, cores or cpus, which
only the hosts may know; while some cannot be reached, spares are counted instead.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import SERVICE_BASE
from mslaunch.errors import AllocationError, UsageError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks.table import service_info
from mslaunch.plan.hosts.choose_spares import exchange, missing, ready_spares
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.plan.mapping.mapper import map_job, topology_decides

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from mslaunch.datamodel.jobmap import Allocation, JobMap, Node
    from mslaunch.datamodel.request import Request


class NoPlaceError(Exception):
    """No other attempt is made; the lines say why.  `code` is then the exit code; 0: that of the last failure."""

    def __init__(self, lines: Sequence[str], code: int = 0) -> None:
        super().__init__(*lines)
        self.lines = lines
        self.code = code


class PreviousAttempt(NamedTuple):
    """What the attempt that failed was made of."""

    number: int  # from 1; 0: no attempt has begun, since hosts cannot be reached
    allocation: Allocation
    size: int  # how many ranks it had
    service_host: str = ""  # the host of the services as it was named, if it was
    service_node: str = ""  # the name of the node that this is


class Candidate(NamedTuple):
    """One way to start all ranks again."""

    request: Request
    allocation: Allocation
    size: int  # how many ranks it must have
    changed: str  # what differs from the attempt before: "node04 takes the place of node02"


def candidates(
    request: Request, counts: Sequence[int], before: PreviousAttempt, gone: Collection[str]
) -> Iterator[Candidate]:
    """With all ranks: `request` is that of the first attempt, `counts` its ranks for each program.

    `gone` are the names of nodes that cannot be reached now.  A spare replaces each of them; then more spares, if these
    have fewer slots; free slots of other hosts are used in any case.
    """
    out, ready = missing(before.allocation, gone), ready_spares(before.allocation, gone)
    for many in range(min(len(out), len(ready)), len(ready) + 1):
        for whole in (False, True) if out and many else (False,):
            yield _candidate(request, counts, before, gone, ready[:many], whole)


def smaller_candidates(
    request: Request, counts: Sequence[int], before: PreviousAttempt, gone: Collection[str], room: int
) -> Iterator[Candidate]:
    """With fewer ranks, if `may_shrink`; `room` are the slots of all hosts that can be reached, spares included."""
    size, ready = sum(counts), ready_spares(before.allocation, gone)
    most = size - 1 if request.policy.oversubscribe else min(size - 1, room)
    for number in range(most, max(request.min_ranks, 1) - 1, -1):
        for comes in (ready, []) if ready else ([],):
            yield _candidate(request, [number], before, gone, comes, whole=True)


def may_shrink(request: Request) -> bool:
    """With --min-ranks and one program: of several it is not known which should have fewer ranks."""
    return request.min_ranks > 0 and len(request.apps) == 1


def _candidate(
    request: Request,
    counts: Sequence[int],
    before: PreviousAttempt,
    gone: Collection[str],
    comes: Sequence[Node],
    whole: bool,
) -> Candidate:
    out = missing(before.allocation, gone)
    apps = tuple(app._replace(np=np) for app, np in zip(request.apps, counts))
    allocation = exchange(before.allocation, [node.name for node in out], comes, whole)
    size = sum(counts)
    host = _service_host(before, out, comes, gone)
    changed = _changed(before, out, comes, size)
    if before.service_host and not host:
        changed += f"{', ' if changed else ''}{service_info(SERVICE_BASE).title} moves to the host of rank 0"
    request = request._replace(apps=apps, cluster=request.cluster._replace(host=host))
    if before.number:
        request = request._replace(stdin="none")  # the first attempt has read it
    return Candidate(request, allocation, size, changed)


def _service_host(before: PreviousAttempt, out: Sequence[Node], comes: Sequence[Node], gone: Collection[str]) -> str:
    """The host of the services: as before, or the replacement of their host; "": that of rank 0."""
    name = before.service_node
    instead = {old.name: new.name for old, new in zip(out, comes)}
    return instead.get(name, "" if name in gone else before.service_host)


def _changed(before: PreviousAttempt, out: Sequence[Node], comes: Sequence[Node], size: int) -> str:
    pairs = list(zip(out, comes))
    changes = [f"{new.name} takes the place of {old.name}" for old, new in pairs]
    left = [node.name for node in out[len(pairs) :]]
    if left:
        changes.append(f"{fold(left)} {'is' if len(left) == 1 else 'are'} left out")
    more = [node.name for node in comes[len(pairs) :]]
    if more:
        changes.append(f"{fold(more)} {'comes' if len(more) == 1 else 'come'} in")
    if size != before.size:
        changes.append(f"{counted(size, 'rank')} instead of {before.size}")
    return ", ".join(changes)


# --- without -n


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
    out, ready = missing(past.allocation, gone), ready_spares(past.allocation, gone)
    others = exchange(past.allocation, gone, ready[: len(out)])
    if not others.nodes or (len(ready) < len(out) and not request.min_ranks):
        know = f"{fold([node.name for node in out])} {'knows' if len(out) == 1 else 'know'}"
        what = f"no spare host is left, and without -n only {know} how many ranks there are"
        raise NoPlaceError([f"not started: {what}"])
    try:
        return counts_of(place(others), programs)
    except (AllocationError, UsageError) as refused:
        raise NoPlaceError([f"not started: {refused.what}"]) from None
