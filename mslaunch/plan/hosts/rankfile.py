"""Rankfiles: the text of `rank 1=node2 slot=0:1-2` to `RankLine`s, and these to nodes.

The grammar is what Open MPI 4.1's mpirun takes (found by experiment; docs/placement.md has it), in any order of lines.
A line without slot= is refused, as by 4.1.4.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import RankLine
from mslaunch.errors import HostfileError, LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.hosts.host_names import chosen, first_said
from mslaunch.plan.hosts.host_ranges import quoted
from mslaunch.plan.hosts.hostfile import lines_of, parse_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.plan.hosts.host_names import HostNames, Table

_EXAMPLE = "write it like: rank 0=node1 slot=0:1-2"


def parse_ranks(text: str, name: str) -> tuple[RankLine, ...]:
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
    try:
        hosts = parse_hosts(line.host)
        if len(hosts) != 1 or hosts[0].name.startswith(("^", "+e")):
            raise HostfileError("a rank goes to one host", line.source, _EXAMPLE)
        if hosts[0].name[0] == "+":
            return chosen(hosts[0], base())[0]._replace(max_slots=None)
    except LaunchError as error:
        raise HostfileError(f"cannot use {quoted(line.host)}: {error.what}", line.source, error.todo) from None
    return naming.node(hosts[0])
