"""Rankfiles: `rank 1=node2 slot=0:1-2`, their text to `RankLine`s, and these to a map.

The grammar is what Open MPI 4.1's mpirun takes (found by experiment; docs/placement.md has it), in any order of lines.
This module opens no files; which node a name stands for, `allocation` knows.  A rankfile both maps and binds: the
placements have their cpus already, as far as the topology of the node is known.

The surprising thing: a rank needs its slot=, for without one 4.1.4 refuses the file, and a rankfile that leaves cpus
open is mostly a mistake.
"""

from __future__ import annotations

from mslaunch.datamodel.hosts import RankLine
from mslaunch.datamodel.jobmap import Placement
from mslaunch.datamodel.topology import LEVELS
from mslaunch.errors import AllocationError, HostfileError, LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.hosts.file_lines import lines_of
from mslaunch.plan.hosts.host_names import YES, first_said
from mslaunch.plan.hosts.host_ranges import quoted
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mslaunch.datamodel.hosts import Allocation, Node
    from mslaunch.datamodel.request import Request
    from mslaunch.plan.hosts.host_names import HostNames, Table
    from mslaunch.plan.mapping.slot_counts import SlotCounts
    from mslaunch.plan.mapping.topology_view import Locale, TopologyView

_EXAMPLE = "write it like: rank 0=node1 slot=0:1-2"
_PHYSICAL = "rmaps_rank_file_physical"


def parse(text: str, name: str) -> tuple[RankLine, ...]:
    """The lines of a rankfile, by rank; `name` is what messages and `source` call the file.

    Raises HostfileError, whatever the text, with `where` = NAME:LINE.
    """
    found: dict[int, RankLine] = {}
    for number, line in lines_of(text, name):
        where = f"{name}:{number}"
        new = _line(line, where)
        old = found.setdefault(new.rank, new)
        if old is not new:
            raise HostfileError(
                f"rank {new.rank} has a place already, from {old.source}", where, "give each rank one line"
            )
    if not found:
        raise HostfileError("no rank is named", name, _EXAMPLE)
    return tuple(found[rank] for rank in sorted(found))


def _line(line: str, where: str) -> RankLine:
    """`rank N = HOST slot = LIST`, with blanks or without around each =."""
    words = line.replace("=", " = ").split()
    if words[0].lower() != "rank" or words[2:3] != ["="]:
        raise HostfileError(f"cannot read {quoted(line.strip())}: this is no line of a rankfile", where, _EXAMPLE)
    number = words[1]
    if not (number.isascii() and number.isdigit() and len(number) < 9):
        raise HostfileError(f"{quoted(number)} is not the number of a rank", where, _EXAMPLE)
    host = words[3] if len(words) > 3 else ""
    if host in ("", "=") or words[4:5] == ["="]:
        raise HostfileError(f"rank {number} has no host", where, _EXAMPLE)
    if words[4:6] != ["slot", "="] or len(words) < 7 or "=" in words[6:]:
        raise HostfileError(f"rank {number} on {quoted(host)} has no slot=LIST behind it", where, _EXAMPLE)
    return RankLine(int(number), host, "".join(words[6:]), where)


def resolve(
    lines: Iterable[RankLine], naming: HostNames, base: Callable[[], Table]
) -> tuple[Table, list[tuple[str, RankLine]]]:
    """The nodes of the lines, each with as many slots as it has lines, and the lines, each with its node's name.

    `base` gives the hosts that `+n1` counts.  Raises HostfileError for a host that cannot be one.
    """
    table: Table = {}
    named = []
    for line in lines:
        node = _node(line, naming, base)
        old = table.get(node.name)
        if old is None:
            table[node.name] = node._replace(slots=1, source=line.source)
        else:
            table[node.name] = first_said(old, node)._replace(slots=(old.slots or 0) + 1)
        named.append((node.name, line))
    return table, named


def _node(line: RankLine, naming: HostNames, base: Callable[[], Table]) -> Node:
    from mslaunch.plan.hosts.hostfile import parse_hosts

    try:
        hosts = parse_hosts(line.host)
        if len(hosts) != 1 or hosts[0].name.startswith(("^", "+e")):
            raise HostfileError("a rank goes to one host", line.source, _EXAMPLE)
        if hosts[0].name[0] == "+":
            from mslaunch.plan.hosts.relative_hosts import chosen

            return chosen(hosts[0], base())[0]._replace(max_slots=None)
    except LaunchError as error:
        raise HostfileError(f"cannot use {quoted(line.host)}: {error.what}", line.source, error.todo) from None
    return naming.node(hosts[0])


def by_rankfile(request: Request, allocation: Allocation, slots: SlotCounts, machines: TopologyView) -> list[Placement]:
    """The placements of the ranks that the app contexts ask for; without np, of all lines that are left.

    `Placement.node` is an index into the allocation.  Raises AllocationError for a rank that is not in the file or has
    a host that its app context may not use, UsageError for cpus that its node has not.
    """
    lines = {line.rank: line for line in allocation.ranks}
    made: list[Placement] = []
    for app, context in enumerate(request.apps):
        mine = slots.all_of(app)
        begin = len(made)
        end = begin + context.np if context.np is not None else len(lines)
        if end <= begin:
            raise AllocationError("the rankfile has no ranks left for this program", "-np", "say how many ranks it has")
        for rank in range(begin, end):
            line = lines.get(rank)
            if line is None:
                todo = f"add one, as: rank {rank}=node1 slot=0; or lower -np"
                raise AllocationError(f"rank {rank} of {end} has no line", request.policy.rankfile or "", todo)
            made.append(_placed(app, line, mine, slots, machines, request))
    return made


def _placed(
    app: int, line: RankLine, mine: Sequence[int], slots: SlotCounts, machines: TopologyView, request: Request
) -> Placement:
    node = line.node
    if node not in mine:
        raise AllocationError(
            f"rank {line.rank} is for {line.host}, which is not among the hosts of its program",
            line.source,
            "add it to -H or --hostfile, or leave these out: a rankfile alone will do",
        )
    local = slots.used[node]
    slots.take(node, 1)
    if not machines.is_known(node):
        return Placement(line.rank, app, node, local)
    places = _places(line, node, slots, machines, request)
    cpus = tuple(machines.of(node).cpus[at] for at in places)
    return Placement(line.rank, app, node, local, cpus, _object(machines, node, places))


def _places(line: RankLine, node: int, slots: SlotCounts, machines: TopologyView, request: Request) -> Sequence[int]:
    """Where in `Topology.cpus` the listed cpus are; physical numbers stand for the cores around them (4.1.4)."""
    from mslaunch.plan.cpu_lists import listed

    topology, hwthreads = machines.of(node), request.policy.hwthread_cpus
    name = slots.nodes[node].name
    if dict(request.mca).get(_PHYSICAL, "").lower() not in YES:
        return listed(line.cpus, topology, hwthreads, line.source, name)
    core = LEVELS.index("core")
    objects = (*topology.objects[:core], topology.cpus, *topology.objects[core + 1 :])
    places = listed(line.cpus, topology._replace(objects=objects), False, line.source, name)
    cores = topology.objects[core]
    if hwthreads or not cores:
        return places
    chosen = {cores[at] for at in places}
    return [at for at, number in enumerate(cores) if number in chosen]


def _object(machines: TopologyView, node: int, places: Sequence[int]) -> Locale:
    """The object that has exactly these hardware threads, the smallest of several; else the whole node."""
    for level in LEVELS:
        row = machines.row(node, level)
        if row and machines.inside(node, (level, row[places[0]])) == list(places):
            return level, row[places[0]]
    return WHOLE
