"""Ranks to nodes: by slot, by node, or so many a node, for all app contexts of a job.

It counts slots, and knows no cores, no users and no way to reach a node.  The rules are Open MPI 4.1's, found by
experiment, with one difference: max_slots is kept, where mpirun overruns it.

The surprising thing is what --oversubscribe does by slot: not "start again at the first node", but every node gets its
slots and an even share of the rest, so 2 2 2 slots with 7 ranks are 3 2 2.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import JobMap, Placement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mslaunch.model import Allocation, Node, Policy, Request

MAX_RANKS = 1 << 20  #: more than this are a slip of the finger


def map_job(request: Request, allocation: Allocation) -> JobMap:
    """Places the ranks of all app contexts; every node's slots must be known.

    Ranks go on from app context to app context, and slots that one has taken are taken for the next.  Without np an
    app context asks for all slots (with -N: for N on every node).  Raises AllocationError.
    """
    field = _Field(allocation, request.policy)
    rows: list[tuple[int, int]] = []  # (app, node) in rank order
    for app, context in enumerate(request.apps):
        if context.np is not None and not 0 < context.np <= MAX_RANKS - len(rows):
            raise AllocationError(f"{context.np} ranks cannot be started", "-np", f"ask for 1 to {MAX_RANKS} ranks")
        field.asked = len(rows)
        rows += [(app, node) for node in field.place(app, context.np)]
    return _as_map(rows, field, request.policy)


class _Field:
    """The nodes, and how many ranks each has so far."""

    def __init__(self, allocation: Allocation, policy: Policy) -> None:
        self.nodes = allocation.nodes
        self.apps = allocation.apps
        self.policy = policy
        self.over = policy.oversubscribe or not allocation.declared  # on this host alone, nobody counts
        self.slots = [_known(node) for node in allocation.nodes]
        self.used = [0] * len(self.nodes)
        self.asked = 0  # ranks of the app contexts before

    def place(self, app: int, np: int | None) -> Iterator[int]:
        """The nodes of the ranks of an app context, in rank order."""
        mine = self.apps[app] if self.apps else range(len(self.nodes))
        if self.policy.per_node is not None:
            counts = self._per_node(mine, np, self.policy.per_node)
        else:
            wanted = np if np is not None else sum(self.slots[node] for node in mine)
            if wanted > MAX_RANKS:
                raise AllocationError(
                    f"the slots of all nodes are {wanted}", todo=f"ask for 1 to {MAX_RANKS} ranks with -np"
                )
            self._check(mine, wanted)
            counts = self._by_node(mine, wanted) if self.policy.map_by == "node" else self._by_slot(mine, wanted)
        for node, count in zip(mine, counts):
            self.used[node] += count
        return _turns(mine, counts) if self._interleaved() else _blocks(mine, counts)

    def _interleaved(self) -> bool:
        return self.policy.map_by == "node" and self.policy.per_node is None

    def _room(self, node: int, over: bool) -> int:
        """How many more ranks the node takes."""
        limit = self.nodes[node].max_slots
        most = (MAX_RANKS if limit is None else limit) if over else self.slots[node]
        return max(0, most - self.used[node])

    def _check(self, mine: Sequence[int], wanted: int) -> None:
        """Raises AllocationError if `wanted` more ranks have no room on these nodes."""
        free = sum(self._room(node, self.over) for node in mine)
        if wanted > free:
            raise self.refusal(mine, f"{wanted} {_s('rank', wanted)} asked for, {free} {_s('slot', free)} free")

    def _by_slot(self, mine: Sequence[int], wanted: int) -> list[int]:
        """Free slots in order, then an even share of the rest, the first nodes one more."""
        counts = []
        for node in mine:
            counts.append(min(wanted, self._room(node, False)))
            wanted -= counts[-1]
        return self._spread(mine, counts, wanted)

    def _by_node(self, mine: Sequence[int], wanted: int) -> list[int]:
        """One a node in turn; nodes that are full drop out, unless there are more ranks than slots."""
        free = [self._room(node, False) for node in mine]
        if wanted > sum(free):
            return self._spread(mine, [0] * len(mine), wanted)
        return _even(free, wanted)

    def _spread(self, mine: Sequence[int], counts: list[int], rest: int) -> list[int]:
        """The share of the rest on top of `counts`; those left over begin at the first node that had a free slot."""
        first = next((at for at, node in enumerate(mine) if self._room(node, False)), 0)
        room = [self._room(node, True) - count for node, count in zip(mine, counts)]
        share = _even(room[first:] + room[:first], rest)
        back = len(share) - first
        return [count + more for count, more in zip(counts, share[back:] + share[:back])]

    def _per_node(self, mine: Sequence[int], np: int | None, each: int) -> list[int]:
        """`each` ranks a node; with np the first np of these places."""
        if not 0 < each <= MAX_RANKS // len(mine):
            raise AllocationError(f"{each} ranks a node cannot be started", "-N", f"ask for 1 to {MAX_RANKS} in all")
        wanted = each * len(mine) if np is None else np
        if wanted > each * len(mine):
            raise AllocationError(
                f"{wanted} ranks do not fit on {len(mine)} {_s('node', len(mine))} with {each} a node",
                "-N",
                "raise -N, lower -np, or name more hosts",
            )
        counts = []
        for node in mine:
            counts.append(min(each, wanted))
            wanted -= counts[-1]
            free = self._room(node, self.over)
            if counts[-1] > free:
                what = (
                    f"{each} ranks a node asked for with -N, {free} {_s('slot', free)} free on {self.nodes[node].name}"
                )
                raise self.refusal(mine, what)
        return counts

    def refusal(self, mine: Sequence[int], what: str) -> AllocationError:
        """Not enough slots: what there is, who said so, and the flag that helps."""
        if self.asked:
            what += f" (the programs before took {self.asked})"
        rows = [("node", "slots", "from")]
        for node in mine[:32]:
            one = self.nodes[node]
            slots = f"{self.slots[node]}" if one.max_slots is None else f"{self.slots[node]}, at most {one.max_slots}"
            rows.append((one.name, slots, one.source))
        width = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
        table = [f"{name:<{width[0]}}  {slots:<{width[1]}}  {source}" for name, slots, source in rows]
        if len(mine) > 32:
            table.append(f"and {len(mine) - 32} more nodes")
        if self.over:
            way = "max_slots is kept even with --oversubscribe: raise it, ask for fewer ranks, or name more hosts"
        else:
            way = "ask for fewer ranks, give the hosts more slots (slots=N, -H HOST:N), or add --oversubscribe"
        return AllocationError("not enough slots: " + what, todo="\n".join([*table, way]))


def _known(node: Node) -> int:
    if node.slots is None:
        raise AllocationError(
            f"the number of slots of {node.name} is not known", node.source, "give it with slots=N or -H HOST:N"
        )
    return node.slots


def _even(room: Sequence[int], wanted: int) -> list[int]:
    """`wanted` things dealt one at a time to places with so much room, in order; as if dealt, but in few steps."""
    counts = [0] * len(room)
    open_ = [at for at, most in enumerate(room) if most > 0]
    while wanted and open_:
        if wanted < len(open_):
            for at in open_[:wanted]:
                counts[at] += 1
            break
        step = min(wanted // len(open_), *(room[at] - counts[at] for at in open_))
        for at in open_:
            counts[at] += step
        wanted -= step * len(open_)
        open_ = [at for at in open_ if counts[at] < room[at]]
    return counts


def _blocks(mine: Sequence[int], counts: Sequence[int]) -> Iterator[int]:
    for node, count in zip(mine, counts):
        for _ in range(count):
            yield node


def _turns(mine: Sequence[int], counts: Sequence[int]) -> Iterator[int]:
    for turn in range(max(counts, default=0)):
        for node, count in zip(mine, counts):
            if turn < count:
                yield node


def _as_map(rows: Sequence[tuple[int, int]], field: _Field, policy: Policy) -> JobMap:
    """Numbers ranks and local ranks; leaves out the nodes without a rank; binds where each rank has a slot."""
    used = [node for node, count in enumerate(field.used) if count]
    index = {node: at for at, node in enumerate(used)}
    bound = {node for node in used if policy.bind_to == "core" and field.used[node] <= field.slots[node]}
    locals_ = dict.fromkeys(used, 0)
    placements = []
    for rank, (app, node) in enumerate(rows):
        local = locals_[node]
        locals_[node] += 1
        placements.append(Placement(rank, app, index[node], local, (local,) if node in bound else ()))
    return JobMap(
        nodes=tuple(field.nodes[node] for node in used),
        placements=tuple(placements),
        slots=sum(field.slots),
        oversubscribed=any(field.used[node] > field.slots[node] for node in used),
    )


def _s(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
