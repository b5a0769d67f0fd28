"""The slots of the nodes while the app contexts of a job are mapped one after another, and that loop itself.

A mapper that maps `app_by_app` says how many ranks each node gets and to which object each of them is mapped.  This
module chooses the nodes of each app context, counts the slots that are taken, and numbers the ranks.  The n-th rank on
a node gets the n-th object whatever its app context, so the ranks of a second program go on where those of the first
end.

As in Open MPI 4.1, an app context begins at the node where the one before it began (with SPAN: ended), if that still
has a free slot.  --oversubscribe lifts the slots; `max_slots` is kept, which mpirun overruns.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Placement
from mslaunch.errors import AllocationError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mslaunch.datamodel.jobmap import Allocation, Node
    from mslaunch.datamodel.request import Policy, Request
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView

    #: app context, its nodes, its -np -> for each of these nodes the locales of the new ranks
    Places = Callable[[int, Sequence[int], int | None], Sequence[Sequence[Locale]]]

MAX_RANKS = 1 << 20  #: more than this are a slip of the finger
_SHOWN = 32  # nodes in a refusal


class SlotCounts:
    """The nodes of an allocation, by index, and how many ranks each has so far.

    `over`: more ranks than slots are allowed, because it was said, or because nobody has declared a slot (a launch on
    this host alone) and it was not forbidden.
    """

    def __init__(self, allocation: Allocation, policy: Policy) -> None:
        self.nodes = allocation.nodes
        self.over = not allocation.declared if policy.oversubscribe is None else policy.oversubscribe
        self.slots = [_known(node) for node in allocation.nodes]
        self.used = [0] * len(self.nodes)
        self.mapped: list[int] = []  # nodes with a rank, in the order in which they got the first
        self.asked = 0  # ranks of the app contexts before
        self._apps = allocation.apps
        self._nolocal = policy.nolocal
        self._mine: Sequence[int] = ()  # the nodes of the present app context, full or not
        self.first = -1  # the node where the next app context begins, if it has a free slot

    def all_of(self, app: int) -> list[int]:
        """The nodes that an app context may use, full or not.  Raises AllocationError if there are none."""
        mine: Sequence[int] = self._apps[app] if self._apps else range(len(self.nodes))
        kept = [node for node in mine if not (self._nolocal and self.nodes[node].local)]
        if not kept:
            raise AllocationError(
                "no node is left without this host", "--nolocal", "name other hosts with -H or --hostfile"
            )
        self._mine = kept
        return kept

    def open_to(self, app: int, whole: bool = False) -> list[int]:
        """Its nodes that take another rank, the one to begin with first.  Raises AllocationError if all are full.

        `whole`: the others too, for a pattern that is to be met on all of them.
        """
        mine = [node for node in self.all_of(app) if self.room(node)]
        if not mine:
            raise self.refusal("all nodes are filled")
        mine = self._turned(list(self._mine) if whole else mine)
        self.first = mine[0]
        return mine

    def total(self, app: int) -> int:
        """The slots of its nodes, taken or not: what an app context without np asks for.  Raises AllocationError."""
        slots = sum(self.slots[node] for node in self.all_of(app))
        if slots > MAX_RANKS:
            raise AllocationError(
                f"the slots of all nodes are {slots}", todo=f"ask for 1 to {MAX_RANKS} ranks with -np"
            )
        return slots

    def free(self, node: int) -> int:
        """How many slots of the node are free."""
        return max(0, self.slots[node] - self.used[node])

    def room(self, node: int) -> int:
        """How many more ranks the node takes, with all that is allowed."""
        return self.limit(node) if self.over else self.free(node)

    def limit(self, node: int) -> int:
        """How many more ranks max_slots allows; without it, as many as there can be."""
        limit = self.nodes[node].max_slots
        return max(0, (MAX_RANKS if limit is None else limit) - self.used[node])

    def take(self, node: int, count: int) -> None:
        """`count` more ranks are on the node."""
        if count and not self.used[node]:
            self.mapped.append(node)
        self.used[node] += count

    def check(self, mine: Sequence[int], wanted: int) -> None:
        """Raises AllocationError if `wanted` more ranks have no room on these nodes together."""
        room = sum(map(self.room, mine))
        if wanted > room:
            raise self.refusal(f"not enough slots: {counted(wanted, 'rank')} asked for, {counted(room, 'slot')} free")

    def filled(self, mine: Sequence[int], counts: Sequence[int], rest: int) -> list[int]:
        """`rest` more ranks on top of `counts`: free slots in order, then an even share.

        So 2 2 2 slots with 7 ranks are 3 2 2: --oversubscribe does not start again at the first node (4.1.4).
        """
        full = []
        for node, count in zip(mine, counts):
            more = min(rest, max(0, self.free(node) - count))
            full.append(count + more)
            rest -= more
        return self.shared(mine, full, rest)

    def shared(self, mine: Sequence[int], counts: Sequence[int], rest: int) -> list[int]:
        """`rest` more ranks on top of `counts`, alike for all nodes that have the room."""
        room = [self.room(node) - count for node, count in zip(mine, counts)]
        return [count + more for count, more in zip(counts, even(room, rest))]

    def refusal(self, what: str) -> AllocationError:
        """`what` is wrong, what there is, who said so, and the flag that helps."""
        from mslaunch.plan.displays import aligned

        rows = [("node", "slots", "from")]
        for one, slots in ((self.nodes[node], self.slots[node]) for node in self._mine[:_SHOWN]):
            most = "" if one.max_slots is None else f", at most {one.max_slots}"
            rows.append((one.name, f"{slots}{most}", one.source))
        more = len(self._mine) - _SHOWN
        lines = [*aligned(rows), *([f"and {counted(more, 'more node')}"] if more > 0 else [])]
        before = f" (the programs before took {self.asked})" if self.asked else ""
        way = "ask for fewer ranks, give the hosts more slots (slots=N, -H HOST:N), or add --oversubscribe"
        if self.over:
            way = "max_slots is kept even with --oversubscribe: raise it, ask for fewer ranks, or name more hosts"
        return AllocationError(what + before, todo="\n".join([*lines, way]))

    def _turned(self, mine: list[int]) -> list[int]:
        """The nodes in turn from the one where the app context before began, or the next that has a free slot.

        If none has one, from the node that is least over its slots, the last of several (mpirun 4.1.4).
        """
        at = mine.index(self.first) if self.first in mine else 0
        mine = mine[at:] + mine[:at]
        if self.free(mine[0]):
            return mine
        at = next((at for at, node in enumerate(mine) if self.free(node)), -1)
        if at < 0:
            above = [self.used[node] - self.slots[node] for node in mine]
            at = len(mine) - 1 - above[::-1].index(min(above)) if above[-1] < above[0] else 0
        return mine[at:] + mine[:at]


def even(room: Sequence[int], wanted: int) -> list[int]:
    """`wanted` things dealt one at a time to places with so much room, in order; as if dealt, but in few steps."""
    counts = [0] * len(room)
    open_ = [at for at, most in enumerate(room) if most > 0]
    while wanted and open_:
        step = max(1, min(wanted // len(open_), *(room[at] - counts[at] for at in open_)))
        for at in open_[:wanted]:
            counts[at] += step
        wanted -= step * len(open_[:wanted])
        open_ = [at for at in open_ if counts[at] < room[at]]
    return counts


def _known(node: Node) -> int:
    if node.slots is None:
        raise AllocationError(
            f"the number of slots of {node.name} is not known", node.source, "give it with slots=N or -H HOST:N"
        )
    return node.slots


# --- app context by app context


class MappingJob(NamedTuple):
    """What a mapper is given."""

    request: Request
    policy: Policy  # settled: `map_by`, `rank_by` and `hwthread_cpus` are filled in
    allocation: Allocation
    slots: SlotCounts
    machines: TopologyView


def app_by_app(job: MappingJob, places: Places) -> list[Placement]:
    """The placements of all ranks, as `places` gives them for each app context."""
    return numbered(_rows(job, places))


def _rows(job: MappingJob, places: Places) -> Iterator[tuple[int, int, Sequence[Locale]]]:
    policy, slots, machines = job.policy, job.slots, job.machines
    for app, context in enumerate(job.request.apps):
        mine = slots.open_to(app, whole=bool(policy.ppr) and context.np is None)
        taken = dict(zip(mine, places(app, mine, context.np)))
        for node, locales in taken.items():
            if policy.pe:
                machines.check_cpus(node, locales, policy)
            slots.take(node, len(locales))
            slots.asked += len(locales)
        if policy.rank_by == "slot":  # nearly always, and without another module
            for node in slots.mapped:
                yield app, node, taken.get(node, ())
            continue
        from mslaunch.plan.mapping.ranking import ranked

        for node, locale in ranked(taken, slots.mapped, policy, machines):
            yield app, node, (locale,)


def numbered(rows: Iterable[tuple[int, int, Sequence[Locale]]]) -> list[Placement]:
    """Placements in rank order, of (app, node, locales of its next ranks): ranks and local ranks counted through."""
    used: dict[int, int] = {}
    made: list[Placement] = []
    for app, node, locales in rows:
        rank, local = len(made), used.get(node, 0)
        used[node] = local + len(locales)
        made += [
            Placement._make((rank + at, app, node, local + at, (), locale, ())) for at, locale in enumerate(locales)
        ]
    return made
