"""-H entries that point at other hosts: `+n1` the second host, `+e` all empty ones, `+e:2` two of them, `^a` not a.

They choose from the hostfile of their app context, else from those of the others, else from the default hostfile, else
from this host alone, and keep its slots and its order.  Counted from 0, this host first if it is among them (mpirun
4.1.4, by experiment); nothing has been started yet, so all hosts are empty.  `^a` is documented for Open MPI, and 4.1.4
fails on it: here, `-H a,b,^a` is b, and entries that only leave hosts out leave them out of the hostfile.  A host to
leave out that is not there is refused.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.hosts.host_names import local_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import HostLine, Node
    from mslaunch.plan.hosts.host_names import HostNames, Table


def chosen(line: HostLine, base: Table) -> list[Node]:
    """The nodes in `base` that `+n1`, `+e` or `+e:2` means.  Raises AllocationError if there are not so many."""
    nodes = local_first(base)
    known = f"the hosts are {', '.join(node.name for node in nodes[:16])}" + (", …" if len(nodes) > 16 else "")
    if line.name == "+e":
        if line.slots is not None and line.slots > len(nodes):
            what = f"{counted(line.slots, 'host')} asked for, {counted(len(nodes), 'host')} named"
            raise AllocationError(what, f"-H +e:{line.slots}", known)
        return nodes[: line.slots]
    number = int(line.name[2:])
    if number >= len(nodes):
        raise AllocationError(f"there is no host number {number}, counted from 0", f"-H {line.name}", known)
    return nodes[number : number + 1]


def in_order(lines: Sequence[HostLine], base: Table) -> Table:
    """All nodes that the relative ones of these lines mean, each once, in the order of `base` (4.1.4)."""
    names = {node.name for line in lines if line.name[0] == "+" for node in chosen(line, base)}
    return {node.name: node for node in local_first(base) if node.name in names}


def left_out(lines: Sequence[HostLine], table: Table, naming: HostNames) -> set[str]:
    """The names of the nodes that `^a` entries leave out of the table.  Raises AllocationError if one is not in it."""
    gone = set()
    for line in lines:
        name = naming.named(line.name[1:]).name
        if name not in table:
            raise AllocationError(
                f"{name} cannot be left out, for it is not among the hosts",
                f"-H {line.name}",
                "-H ^HOST leaves a host out of the others of -H, or, alone, out of the hostfile",
            )
        gone.add(name)
    return gone
