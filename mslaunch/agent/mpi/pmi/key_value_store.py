"""The key-value space of a world (PMI's kvs), as far as this node knows it.

Keys that were put here are seen here at once, elsewhere after the next fence.  A rank may run one MPI program after the
other, each with keys of its own, and be in the second while its neighbour still reads what the first has put.  So there
is a store for each *life*: the nth program of every rank shares the nth store, and fences of different lives are
different fences, on all nodes alike.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.pmi_wire import Refused
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.codec import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.datamodel.node_plan import World

#: the limits that PMI's clients are given; if VALUE were odd, MPICH 5.0.2 would fail with more than one node
NAME, KEY, VALUE = 256, 64, 1024
HELD = 1 << 23  #: bytes that the ranks of one node may have put, so that a fence fits into a frame
_ENTRY = 100  # bytes that an entry costs besides its text
_STORE = 1000  # bytes that a store costs besides its entries


class Store:
    """The keys of one life of a world."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.fresh: dict[str, str] = {}  # put here, and not yet known elsewhere
        self.attributes: dict[str, str] = {}  # of the node (PMI-2)
        self.size = 0

    def put(self, values: dict[str, str], key: str, value: str, space_left: int) -> int:
        """Into `values`, which is one of ours: so many bytes more; raises `Refused` if these exceed `space_left`."""
        if not key or len(key) > KEY or len(value) > VALUE:
            raise Refused("key_too_long" if len(key) > KEY else "value_too_long" if key else "no_key")
        more = _weight(value) - _weight(values[key]) if key in values else _weight(value) + _weight(key) + _ENTRY
        if more > space_left:
            raise Refused("no_room")
        self.size += more
        values[key] = value
        return more

    def packed(self, clear: bool) -> bytes:
        """What other nodes do not know yet; `clear`: after this they all do."""
        blob = pack({key: [value] for key, value in self.fresh.items()})
        if clear:
            self.fresh = {}
        return blob

    def learn(self, blob: bytes) -> None:
        """What a node has put; what was put here meanwhile is newer."""
        for key, values in unpack(blob).items():
            if key not in self.fresh:
                self.values.update((key, value) for value in values[:1])


def _weight(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


class KeySpace:
    """A world on this node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.here = frozenset(world.ranks[world.here]) if world.here >= 0 else frozenset()
        self.lives = dict.fromkeys(self.here, 0)  # how many MPI programs each rank has begun
        self.ended: set[int] = set()
        self._preput = dict(zip(world.preput[::2], world.preput[1::2]))
        self._stores: dict[int, Store] = {}
        self._held = 0  # bytes that were put, of all stores
        self._oldest = 0  # the first life whose store is kept
        self._mapping: str | None = None

    @property
    def mapping(self) -> str:
        """Which rank is on which node, as MPICH writes it; "" if that is longer than a value may be.

        Without it, libraries compare the names of the hosts.
        """
        if self._mapping is None:
            text = process_mapping(self.world.ranks)
            self._mapping = text if len(text) <= VALUE else ""
        return self._mapping

    def program(self, rank: int) -> int:
        """Index of the program that `rank` runs."""
        for index, size in enumerate(self.world.sizes):
            if rank < size:
                return index
            rank -= size
        return 0

    # --- keys

    def _store(self, life: int) -> Store:
        """The keys of a life; raises `Refused` if it has none yet, and there is no room for more.

        A rank may begin programs without end while its neighbour sits in its first.
        """
        if life not in self._stores:
            if self.space_left() < _STORE:
                raise Refused("no_room")
            self._stores[life] = store = Store()
            store.size = _STORE
            self._held += _STORE
        return self._stores[life]

    def packed(self, life: int, clear: bool) -> bytes:
        """What other nodes do not know yet of one of the stores; `clear`: after this they all do."""
        return (self._stores.get(life) or Store()).packed(clear)

    def learn(self, life: int, blob: bytes) -> None:
        """What another node has put, which is bounded there."""
        self._stores.setdefault(life, Store()).learn(blob)

    def attribute(self, life: int, key: str) -> str | None:
        """What was put for the ranks of this node."""
        return self._stores[life].attributes.get(key) if life in self._stores else None

    def space_left(self) -> int:
        """So many bytes may still be put on this node."""
        return HELD - self._held

    def put(self, life: int, key: str, value: str) -> None:
        """By a rank of this node; raises `Refused`."""
        store = self._store(life)
        self._held += store.put(store.values, key, value, self.space_left())
        store.fresh[key] = value

    def put_attribute(self, life: int, key: str, value: str) -> None:
        """For the ranks of this node alone; raises `Refused`."""
        store = self._store(life)
        self._held += store.put(store.attributes, key, value, self.space_left())

    def get(self, life: int, key: str) -> str | None:
        """The value of a key that some rank of that life has put, or that was put before the world began."""
        if key == "PMI_process_mapping":
            return self.mapping or None
        found = self._stores[life].values.get(key) if life in self._stores else None
        return self._preput.get(key) if found is None else found

    def begin(self, rank: int) -> int:
        """`rank` begins an MPI program: its life.  Stores that no rank of this node can ask for go."""
        self.lives[rank] += 1
        oldest = min(life for other, life in self.lives.items() if other == rank or other not in self.ended)
        if oldest > self._oldest:
            for life in [life for life in self._stores if life < oldest]:
                self._held -= self._stores.pop(life).size
            self._oldest = oldest
        return self.lives[rank]


def process_mapping(ranks: Iterable[Iterable[int]]) -> str:
    """`(vector,(first node, nodes, ranks on each),…)` of the ranks of each node.

    MPICH begins again at the start of what is too short, so round robin could be one short block; Intel MPI crashes.
    """
    nodes = [node for _, node in sorted((rank, node) for node, listed in enumerate(ranks) for rank in listed)]
    runs: list[tuple[int, int]] = []  # node, ranks in a row
    for node in nodes:
        if runs and runs[-1][0] == node:
            runs[-1] = (node, runs[-1][1] + 1)
        else:
            runs.append((node, 1))
    blocks: list[tuple[int, int, int]] = []
    for node, each in runs:
        if blocks and sum(blocks[-1][:2]) == node and blocks[-1][2] == each:
            first, count, _ = blocks[-1]
            blocks[-1] = (first, count + 1, each)
        else:
            blocks.append((node, 1, each))
    return "(vector" + "".join(f",({first},{count},{each})" for first, count, each in blocks) + ")"
