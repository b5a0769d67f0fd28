"""The placement of MPI_Comm_spawn: its commands as app contexts, and a map of their ranks onto the slots that are left.

A command begins as a copy of the app context of the rank that spawns, so that -x, --prefix, --mpi and the like hold for
its children too (mpirun 4.1.4, by experiment); MPI_Info changes it.  Keys are those of MPI, Open MPI and MPICH, also
under the names that PMIx has for them; others are ignored, as MPI requires.  Slots of nodes that the job has not used
yet count like any other.  An MPI_Info comes from another host: it names no file that would be opened here, and takes no
variable from here that the job does not have already.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import JobMap, Placement
from mslaunch.datamodel.request import AppContext
from mslaunch.errors import AllocationError, UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.mapping.by_slot_or_object import by_node, by_slot
from mslaunch.plan.mapping.slot_counts import MAX_RANKS, SlotCounts

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Allocation
    from mslaunch.datamodel.request import Policy

#: keys of MPI_Info -> what they say; those with pmix. are PMIx's names, as a library may have translated them
_KEYS = {
    **dict.fromkeys(("host", "hosts", "pmix.host", "add-host", "pmix.addhost"), "hosts"),
    **dict.fromkeys(("hostfile", "pmix.hostfile", "add-hostfile", "pmix.addhostfile"), "hostfile"),
    **dict.fromkeys(("wdir", "wd", "pmix.wdir"), "wdir"),
    "path": "path",
    "env": "env",
    **dict.fromkeys(("prefix", "ompi_prefix", "pmix.prefix"), "prefix"),
    **dict.fromkeys(("map_by", "pmix.mapby"), "map_by"),
    "npernode": "each",
    "pernode": "pernode",
    **dict.fromkeys(("ppr", "pmix.ppr"), "ppr"),
    **dict.fromkeys(("ompi_non_mpi", "pmix.nonpmi"), "no_mpi"),
    **dict.fromkeys(
        ("preload_binary", "ompi_preload_binary", "pmix.preloadbin", "preload_files", "ompi_preload_files",
         "pmix.preloadfiles"),
        "preload",
    ),
}  # fmt: skip
_NO = frozenset(("", "0", "false", "no", "f", "n"))


class SpawnCommand(NamedTuple):
    """One command of MPI_Comm_spawn_multiple, or the only one."""

    argv: tuple[str, ...]
    maxprocs: int
    wdir: str = ""
    env: tuple[str, ...] = ()  # "NAME=value"
    info: tuple[tuple[str, str], ...] = ()


class SpawnPlacement(NamedTuple):
    """One command, understood."""

    app: AppContext
    by_node: bool = False
    each: int = 0  # at most so many ranks on a node; 0: as slots allow
    mpi: bool = True  # its ranks will call MPI_Init


def understand(command: SpawnCommand, parent: AppContext, exports: Container[str] = ()) -> SpawnPlacement:
    """The app context of a command; `exports` are the variables of the launcher that its parent has.

    Raises UsageError for what cannot be done.
    """
    said = {_KEYS[key.lower()]: value for key, value in command.info if key.lower() in _KEYS}
    if said.get("preload", "").lower() not in _NO:
        raise UsageError("files cannot be sent to the hosts of spawned ranks", "MPI_Info", "put them there beforehand")
    if not 0 <= command.maxprocs <= MAX_RANKS:
        raise AllocationError(f"{command.maxprocs} ranks cannot be started", "maxprocs")
    if said.get("hostfile"):
        todo = "name hosts with the key host; the job's own hostfile says which there are"
        raise UsageError("no hostfile is read for spawned ranks", "MPI_Info", todo)
    mpi = said.get("no_mpi", "").lower() in _NO
    app = AppContext(
        command.argv,
        command.maxprocs,
        env=(*parent.env, *_variables((*said.get("env", "").splitlines(), *command.env), exports)),
        wdir=_below(said.get("wdir") or command.wdir, parent.wdir),
        hosts=(said["hosts"],) if said.get("hosts") else (),
        path=said.get("path", parent.path),
        prefix=said.get("prefix", parent.prefix),
        forward=parent.forward,
        mpi=parent.mpi if mpi else "none",
    )
    return SpawnPlacement(app, said.get("map_by", "").lower().partition(":")[0] in ("node", "bynode"), _each(said), mpi)


def _variables(words: Sequence[str], exports: Container[str]) -> list[tuple[str, str]]:
    """`NAME=value`; a name alone is that of a variable that the children have in any case, as their parent has it."""
    found = []
    for name, equals, value in (word.partition("=") for word in words if word.strip()):
        if equals:
            found.append((name, value))
        elif name not in exports:
            todo = f"give -x {name} when the job is launched"
            raise UsageError(f"the job does not export the variable {name}", "MPI_Info env", todo)
    return found


def _below(wdir: str, parent: str | None) -> str | None:
    """A relative directory is one below that of the parent's app context, not below its present one (4.1.4)."""
    if not wdir:
        return parent
    return wdir if wdir.startswith("/") or not parent else f"{parent.rstrip('/')}/{wdir}"


def _each(said: Mapping[str, str]) -> int:
    """Ranks for each node, as `ppr` and its older names say; a number for each object within a node is ignored."""
    text = said.get("each", "")
    if said.get("pernode", "").lower() not in _NO:
        text = "1"
    ppr = said.get("ppr", "")
    if not ppr and said.get("map_by", "").lower().startswith("ppr:"):
        ppr = said["map_by"][len("ppr:") :]
    number, _, what = ppr.partition(":")
    if ppr and (what.lower().partition(":")[0] or "node") in ("node", "n"):
        text = number
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0


# ------------------------------------------------------------------------------------------------ where they go


def place_spawned(
    commands: Sequence[SpawnPlacement],
    allocation: Allocation,
    policy: Policy,
    running: Mapping[str, int],
    usable: Sequence[Sequence[str]],
) -> JobMap:
    """The map of a world: free slots first, in the order of the nodes; more, if the job itself may have more.

    `running` is how many ranks each node has now, of all worlds; `usable` names the nodes that each command may use.
    The nodes of the map have the slots that were free.  Its ranks are not bound: the cores may all be taken.  Raises
    AllocationError.
    """
    index = {node.name: at for at, node in enumerate(allocation.nodes)}
    mine = tuple(tuple(sorted(index[name] for name in names)) for names in usable)
    slots = SlotCounts(allocation._replace(apps=mine), policy)
    slots.used = [running.get(node.name, 0) for node in allocation.nodes]
    free = [slots.free(node) for node in range(len(slots.nodes))]
    locals_ = [0] * len(free)
    placements: list[Placement] = []
    for number, command in enumerate(commands):
        if command.app.np and not mine[number]:
            raise AllocationError("none of the hosts that it may use is there any more")
        slots.asked = first = len(placements)
        for node, count in _shares(slots, number, command):
            slots.take(node, count)
            placements += (Placement(first + at, number, node, locals_[node] + at) for at in range(count))
            locals_[node] += count
            first += count
    if not placements:
        raise AllocationError("no rank was asked for", "maxprocs")
    nodes = sorted({placement.node for placement in placements})
    return JobMap(
        nodes=tuple(allocation.nodes[node]._replace(slots=free[node]) for node in nodes),
        placements=tuple(placement._replace(node=nodes.index(placement.node)) for placement in placements),
        slots=sum(slots.slots),
        oversubscribed=any(slots.used[node] > slots.slots[node] for node in nodes),
    )


def _shares(slots: SlotCounts, number: int, command: SpawnPlacement) -> list[tuple[int, int]]:
    """Nodes, and how many ranks of the command each gets."""
    wanted = command.app.np or 0
    if not wanted:
        return []
    mine = slots.all_of(number)
    if command.each:
        return _dealt(slots, mine, wanted, command.each)
    counts = (by_node if command.by_node else by_slot)(slots, mine, wanted)
    return [(node, count) for node, count in zip(mine, counts) if count]


def _dealt(slots: SlotCounts, mine: Sequence[int], wanted: int, each: int) -> list[tuple[int, int]]:
    shares = []
    for node in mine:
        count = min(each, slots.room(node), wanted)
        wanted -= count
        shares += [(node, count)] if count else []
    if wanted:
        raise slots.refusal(f"not enough slots with {each} on each node: {wanted} more ranks asked for")
    return shares
