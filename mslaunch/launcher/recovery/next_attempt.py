"""Attempts: what follows on one that failed: nothing, or all ranks start again; where, how many, and in which words.

Pure decisions: it calls no host and maps no rank.  `choices` lists what may be tried, best first, and the attempt
(`again`) takes the first that has room and whose hosts can be reached.  The surprising thing: hosts that were left
out are asked for again at the next failure, since they stand by like spares, and so a group that has shrunk may grow.
"""

from __future__ import annotations

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.job.restart_policy import most_restarts
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.plan.hosts.spares import exchange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mslaunch.datamodel.hosts import Allocation, Node
    from mslaunch.datamodel.outcome import Failure
    from mslaunch.datamodel.request import Request
    from mslaunch.errors import LaunchError

CALL_AGAIN = 5.0  #: seconds, at most, for a host that was lost


class PreviousAttempt(NamedTuple):
    """What the attempt that failed was made of."""

    number: int  # from 1; 0: none has begun, and hosts cannot be reached
    allocation: Allocation
    size: int  # how many ranks it had
    scheduler: str = ""  # the host of MindSpore's scheduler, if one was named: in whatever words
    scheduler_node: str = ""  # the name of the node that this is

    def missing(self, gone: Collection[str]) -> list[Node]:
        """Its hosts that cannot be reached now; `gone` are names."""
        return [node for node in self.allocation.nodes if node.name in gone]

    def ready(self, gone: Collection[str]) -> list[Node]:
        """Spares in the order in which they come in: first, for each host that is missing, one with as many slots."""
        ready = [node for node in self.allocation.spares if node.name not in gone]
        first: list[Node] = []
        for old in self.missing(gone)[: len(ready)]:
            left = [node for node in ready if node not in first]
            first.append(next((node for node in left if _fits(node, old)), left[0]))
        return [*first, *(node for node in ready if node not in first)]


class Candidate(NamedTuple):
    """One way to go on."""

    request: Request
    allocation: Allocation
    size: int  # how many ranks it must have
    changed: str  # what is different from before: "node04 takes the place of node02"


def _fits(new: Node, old: Node) -> bool:
    return new.slots is None or old.slots is None or new.slots >= old.slots


def again_text(number: int, request: Request, failure: Failure) -> str:
    """The notice at a failure, before anybody knows whether there will be hosts enough."""
    where = f" on {failure.host}" if failure.host else ""
    delay = f" in {request.restart_delay:g} s" if request.restart_delay else ""
    return f"{of_all(number, request)}: {failure.what}{where}; all ranks are started again{delay}"


def of_all(number: int, request: Request) -> str:
    """`attempt 2 of 4`."""
    return f"attempt {number} of {most_restarts(request) + 1}"


def choices(
    request: Request, counts: Sequence[int], before: PreviousAttempt, gone: Collection[str]
) -> Iterator[Candidate]:
    """What may be tried, best first: `request` is that of the first attempt, `counts` its ranks for each program.

    `gone` are the nodes, by name, that cannot be reached now.  Spares come in for them one by one; then more spares, if
    these have fewer slots; slots that are free elsewhere are used without a word.
    """
    out, ready = before.missing(gone), before.ready(gone)
    for many in range(min(len(out), len(ready)), len(ready) + 1):
        for whole in (False, True) if out and many else (False,):
            yield _choice(request, counts, before, gone, ready[:many], whole)


def fewer(
    request: Request, counts: Sequence[int], before: PreviousAttempt, gone: Collection[str], room: int
) -> Iterator[Candidate]:
    """What may be tried then, if `may_shrink`; `room` are the slots of all that can be reached, spares among them."""
    size, ready = sum(counts), before.ready(gone)
    most = size - 1 if request.policy.oversubscribe else min(size - 1, room)
    for number in range(most, max(request.min_ranks, 1) - 1, -1):
        for comes in (ready, []) if ready else ([],):
            yield _choice(request, [number], before, gone, comes, whole=True)


def may_shrink(request: Request) -> bool:
    """With --min-ranks; which of several programs should have fewer ranks, nobody has said."""
    return request.min_ranks > 0 and len(request.apps) == 1


def _choice(
    request: Request,
    counts: Sequence[int],
    before: PreviousAttempt,
    gone: Collection[str],
    comes: Sequence[Node],
    whole: bool,
) -> Candidate:
    out = before.missing(gone)
    apps = tuple(app._replace(np=np) for app, np in zip(request.apps, counts))
    allocation = exchange(before.allocation, [node.name for node in out], comes, whole)
    size = sum(counts)
    host = _scheduler(before, out, comes, gone)
    changed = _changed(before, out, comes, size)
    if before.scheduler and not host:
        changed += f"{', ' if changed else ''}the MindSpore scheduler goes to the host of rank 0"
    request = request._replace(apps=apps, cluster=request.cluster._replace(host=host))
    if before.number:
        request = request._replace(stdin="none")  # it has gone to the first attempt
    return Candidate(request, allocation, size, changed)


def _scheduler(before: PreviousAttempt, out: Sequence[Node], comes: Sequence[Node], gone: Collection[str]) -> str:
    """Where MindSpore's scheduler is to be: it stays, or goes with its host's ranks; "": to the host of rank 0."""
    name = before.scheduler_node
    instead = {old.name: new.name for old, new in zip(out, comes)}
    return instead.get(name, "" if name in gone else before.scheduler)


def _changed(before: PreviousAttempt, out: Sequence[Node], comes: Sequence[Node], size: int) -> str:
    pairs = list(zip(out, comes))
    said = [f"{new.name} takes the place of {old.name}" for old, new in pairs]
    left = [node.name for node in out[len(pairs) :]]
    if left:
        said.append(f"{fold(left)} {'is' if len(left) == 1 else 'are'} left out")
    more = [node.name for node in comes[len(pairs) :]]
    if more:
        said.append(f"{fold(more)} {'comes' if len(more) == 1 else 'come'} in")
    if size != before.size:
        said.append(f"{counted(size, 'rank')} instead of {before.size}")
    return ", ".join(said)


# --- why it does not go on


def too_often(number: int, request: Request) -> str:
    """The limit is reached."""
    return f"not started again: this was {of_all(number, request)} (--max-restarts)"


def no_host(
    request: Request,
    counts: Sequence[int],
    before: PreviousAttempt,
    gone: Mapping[str, LaunchError],
    room: int,
    refused: LaunchError | None,
) -> list[str]:
    """No choice has room on hosts that can be reached; `refused` says why the best of them has none.

    `room` are the slots of these hosts.
    """
    again = " again" if before.number else ""
    said = [f"not reached{again}: {host}: {error.what}" for host, error in gone.items()]
    size = sum(counts)
    if refused and room >= (request.min_ranks if may_shrink(request) else size):
        return [f"not started{again}: {refused.what}", *said]
    what = f"not started{again}: no spare host is left, and the others have {counted(room, 'slot')}"
    if may_shrink(request):
        what += f", fewer than --min-ranks {request.min_ranks}"
    elif request.min_ranks:
        what += f" for {size} ranks; --min-ranks is for jobs of one program"
    else:
        what += f" for {counted(size, 'rank')}"
        if len(request.apps) == 1 and room:
            what += f"; --min-ranks {min(room, size - 1)} would let it go on with fewer"
    return [what, *said]
