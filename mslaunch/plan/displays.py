"""The tables that the --display options print.

--display-map and --display-allocation are those of mpirun 4.1 to the letter, since scripts read them (the flags of a
node are bits of Open MPI's: 1 daemon launched, 2 location verified, 16 slots given).  The layout of --display-table,
--display-topo and the devel and diffable maps is ours; scripts that want facts have the diffable map, a line a rank.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_NODE
from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.binding import usable
from mslaunch.plan.number_ranges import ranges
from mslaunch.plan.report_bindings import bound_to, brackets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.datamodel.jobmap import Allocation, JobMap, Node, Placement
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import AppContext, Policy

_SHOWN = ("socket", "numa", "l3cache", "l2cache")  # the levels of --display-topo, where they hold more than a core


def show_allocation(allocation: Allocation) -> str:
    """The nodes, their slots, and who said so, as --display-allocation beside --display-table; ends in a line end."""
    rows = [("node", "slots", "most", "reached", "slots from")]
    for node in (*allocation.nodes, *allocation.spares):
        unknown, source = ("as another", f"{node.source}, a spare") if node.spare else ("a slot a core", node.source)
        slots = unknown if node.slots is None else str(node.slots)
        rows.append((node.name, slots, "-" if node.max_slots is None else str(node.max_slots), _way(node), source))
    known = [node.slots for node in allocation.nodes if node.slots is not None]
    more = "" if len(known) == len(allocation.nodes) else " and the cores of the others"
    head = f"allocation: {counted(len(allocation.nodes), 'node')}, {counted(sum(known), 'slot')}{more}"
    if allocation.spares:
        head += f"; {counted(len(allocation.spares), 'spare')}"
    return _table(head, rows)


def show_map(
    jobmap: JobMap,
    apps: Sequence[AppContext],
    how: str = "table",
    topologies: Mapping[str, Topology] | None = None,
    policy: Policy | None = None,
) -> str:
    """Which ranks run where, and their bindings; ends in a line end.

    `how` is Request.display_map, but "map": "table" a table of nodes; "devel" a table of ranks, with what each was
    mapped and bound to in mpirun's notation; "diffable" a line a rank, for diff and awk; "ranks" a line a node, as
    Intel's -print-rank-map.  `topologies` are whole machines, by node name; without them "devel" has numbers of cpus.
    `policy` tells which of these --cpu-set left.
    """
    if how == "ranks":  # Intel MPI's -print-rank-map, as 2021.18 prints it
        hosts: dict[str, list[str]] = {}
        for placement in jobmap.placements:
            hosts.setdefault(jobmap.nodes[placement.node].name, []).append(str(placement.rank))
        return "".join(f"({name}:{','.join(ranks)})\n" for name, ranks in hosts.items()) + "\n"
    if how == "diffable":
        return "".join(_facts(jobmap, placement) + "\n" for placement in jobmap.placements)
    head = _heading(jobmap)
    if how == "table":
        return _table(head, _node_rows(jobmap, apps))
    whole = topologies or {}
    return _table(head, _rank_rows(jobmap, apps, whole, usable(policy, whole) if policy else whole))


def _heading(jobmap: JobMap) -> str:
    nodes = counted(len({placement.node for placement in jobmap.placements}), "node")
    over = ", oversubscribed" if jobmap.oversubscribed else ""
    scheduler = f", the scheduler on {jobmap.nodes[jobmap.service].name}" if jobmap.service != NO_NODE else ""
    ranks, slots = counted(len(jobmap.placements), "rank"), counted(jobmap.slots, "slot")
    return f"map: {ranks} on {nodes}, {slots} in all{over}{scheduler}"


def _node_rows(jobmap: JobMap, apps: Sequence[AppContext]) -> list[tuple[str, ...]]:
    """A row for each program on each node."""
    by_row: dict[tuple[int, int], list[Placement]] = {}
    for placement in jobmap.placements:
        by_row.setdefault((placement.node, placement.app), []).append(placement)
    rows: list[tuple[str, ...]] = [("node", "slots", "ranks", "cpus", "program")]
    before = -1
    for (at, app), here in sorted(by_row.items()):
        node = jobmap.nodes[at]
        name, slots = ("", "") if at == before else (node.name, "?" if node.slots is None else str(node.slots))
        ranks = ranges((placement.rank for placement in here), strides=True)
        rows.append((name, slots, ranks, _cpus(here), _program(apps, app)))
        before = at
    return rows


def _rank_rows(
    jobmap: JobMap, apps: Sequence[AppContext], topologies: Mapping[str, Topology], mapped: Mapping[str, Topology]
) -> list[tuple[str, ...]]:
    """A row for each rank; objects are those of the machines that were `mapped` onto, drawn on the whole ones."""
    rows: list[tuple[str, ...]] = [("rank", "node", "local rank", "mapped to", "that is", "bound to", "program")]
    for placement in jobmap.placements:
        name, (level, number) = jobmap.nodes[placement.node].name, placement.locale
        topology = topologies.get(name)
        rows.append(
            (
                str(placement.rank),
                name,
                str(placement.local_rank),
                f"{level} {number}" if level else "node",
                _drawn(topology, _members(mapped[name], placement.locale)) if topology else "-",
                _drawn(topology, placement.cpus) if placement.cpus else "not bound",
                _program(apps, placement.app),
            )
        )
    return rows


def _drawn(topology: Topology | None, cpus: Sequence[int]) -> str:
    """These cpus in mpirun's notation, or by the kernel's numbers if their node is not known."""
    return brackets(topology, cpus) if topology else "cpus " + ranges(cpus)


def _members(topology: Topology, locale: tuple[str, int]) -> tuple[int, ...]:
    row = topology.row(locale[0]) if locale[0] else ()
    return tuple(cpu for cpu, number in zip(topology.cpus, row) if number == locale[1]) if row else topology.cpus


def _facts(jobmap: JobMap, placement: Placement) -> str:
    """`rank=3 node=node1 local_rank=1 cpus=4-5,12-13`."""
    node, cpus = jobmap.nodes[placement.node].name, ranges(sorted(placement.cpus)) or "none"
    return f"rank={placement.rank} node={node} local_rank={placement.local_rank} cpus={cpus}"


def show_topology(name: str, topology: Topology) -> str:
    """What the cpus of a node share, a row for each group of cores that share all but a core; ends in a line end.

    Numbers of objects are logical, as in policies; those of cpus the kernel's, as in /proc and taskset.
    """
    cores = topology.cpu_row(False)
    many = len(set(cores))
    shared = [level for level in _SHOWN if 0 < len(set(topology.row(level))) < many]
    groups: dict[tuple[int, ...], list[int]] = {}
    for place in range(len(cores)):
        groups.setdefault(tuple(topology.row(level)[place] for level in shared), []).append(place)
    rows = [(*shared, "cores", "cpus")]
    for numbers, places in groups.items():
        mine = sorted({cores[place] for place in places}), sorted(topology.cpus[place] for place in places)
        rows.append((*map(str, numbers), *map(ranges, mine)))
    threads = counted(len(cores), "hardware thread")
    return _table(f"topology of {name}: {counted(many, 'core')}, {threads} that we may use", rows)


def _way(node: Node) -> str:
    if node.local:
        return "here"
    user = f"{node.user}@" if node.user is not None else ""
    port = f":{node.port}" if node.port is not None else ""
    name = f"[{node.name}]" if port and ":" in node.name else node.name
    return f"{user}{name}{port}"


def _cpus(placements: Sequence[Placement]) -> str:
    """The cpus of the ranks: `0-7, 2 each` where none is shared, else each set and how many have it: `0-3 ×2 | 4-7`."""
    sets: dict[tuple[int, ...], int] = {}
    for placement in placements:
        cpus = tuple(sorted(placement.cpus))
        sets[cpus] = sets.get(cpus, 0) + 1
    if not any(sets):
        return "not bound"
    every = sorted({cpu for cpus in sets for cpu in cpus})
    if 1 < len(sets) == len(placements) and len(every) == sum(map(len, sets)) and len(set(map(len, sets))) == 1:
        return f"{ranges(every)}, {len(every) // len(sets)} each"
    return " | ".join((ranges(cpus) or "-") + (f" ×{many}" if many > 1 else "") for cpus, many in sets.items())


def _program(apps: Sequence[AppContext], app: int) -> str:
    words = apps[app].argv if app < len(apps) else ()
    text = " ".join(word if word.isprintable() and word and " " not in word else repr(word) for word in words)
    return text if len(text) <= 48 else text[:47] + "…"


def _table(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join([head, *("  " + line for line in aligned(rows))]) + "\n"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows of a table as lines, with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


# --- as mpirun 4.1 prints them


def allocation_text(allocation: Allocation) -> str:
    """As --display-allocation; slots of a node that has not been asked yet are 0.  Spares, which are ours, follow."""
    rows = [f"\t{node.name}: {_node(node)}" for node in (*allocation.nodes, *allocation.spares)]
    return "\n".join(["", f"{'=' * 22}   ALLOCATED NODES   {'=' * 22}", *rows, "=" * 65, ""])


def _node(node: Node) -> str:
    by_option = node.source.startswith("-H")
    flags = 0x1 | (0 if by_option else 0x2) | (0 if node.source.startswith("cores") else 0x10)
    state = "SPARE" if node.spare else "UP" if by_option or node.local else "UNKNOWN"
    return f"flags={flags:#x} slots={node.slots or 0} max_slots={node.max_slots or 0} slots_inuse=0 state={state}"


def map_text(jobmap: JobMap, topologies: Mapping[str, Topology], job: int) -> str:
    """As --display-map; `job` is the number that stands for the job, `topologies` are whole ones, by node name."""
    lines = [
        f" Data for JOB [{job},1] offset 0 Total slots allocated {jobmap.slots}",
        "",
        f" {'=' * 24}   JOB MAP   {'=' * 24}",
    ]
    for node, here in zip(jobmap.nodes, jobmap.by_node()):
        if not here:  # the services', which mpirun does not have
            continue
        slots = f"Num slots: {node.slots or 0}\tMax slots: {node.max_slots or 0}\tNum procs: {len(here)}"
        lines += ["", f" Data for node: {node.name}\t{slots}"]
        lines += (
            f" \tProcess OMPI jobid: [{job},1] App: {placement.app} Process rank: {placement.rank} "
            f"Bound: {_bound(placement, topologies.get(node.name))}"
            for placement in here
        )
    return "\n".join([*lines, "", f" {'=' * 61}", ""])


def _bound(placement: Placement, topology: Topology | None) -> str:
    """`socket 0[core 0[hwt 0]]:[B/.]`; N/A for a rank that is not bound."""
    if not placement.cpus:
        return "N/A"
    if topology is not None and set(placement.cpus) == set(topology.cpus):
        return "UNBOUND"
    return bound_to(topology, placement.cpus).replace("bound to ", "", 1).replace(": [", ":[", 1)
