"""The nodes that names stand for: host names, the host of the services, and -H entries such as `+n1`, `+e` and `^a`.

As in Open MPI 4.1 a name is cut at its first dot unless orte_keep_fqdn_hostnames is set, so `aa` and
`aa.cluster.local` are one node; this host is one node under all of its names.  Unlike there, hosts are called as they
were typed (`Node.called`), `aa.one.site` and `aa.two.site` are two, and a name of another host is not ours for its
first label alone.

Relative entries: `+n1` is the second host, `+e` all empty ones, `+e:2` two of them, `^a` leaves a out.  They choose
from the hostfile of their app context, else from those of the others, else from the default hostfile, else from this
host alone, and keep its slots and its order.  Hosts are counted from 0, this host first if it is among them (mpirun
4.1.4, by experiment); nothing has been started yet, so all hosts are empty.  `^a` is documented for Open MPI, but 4.1.4
fails on it.  Here `-H a,b,^a` is b, and entries that only leave hosts out leave them out of the hostfile.  To leave out
a host that is not there is refused.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import AllocationError, UsageError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.hosts.hostfile import parse_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.jobmap import Allocation, HostLine
    from mslaunch.datamodel.request import Request

    Table = dict[str, Node]  # by name, in the order of first mention

SERVICE_HOST = "--scheduler"  #: the option that names the host of the services
KEEP_DOMAINS = "orte_keep_fqdn_hostnames"
YES = frozenset(("1", "true", "yes", "t", "y", "on", "enabled"))  #: what Open MPI's boolean parameters take


class HostNames:
    """Names to nodes; `hostname` is what this host is called."""

    def __init__(self, is_local: Callable[[str], bool], hostname: str, keep_domains: bool) -> None:
        self._is_local = is_local
        self._hostname = hostname
        self._keep = keep_domains
        self._known: dict[str, Node] = {}
        self._whole: dict[str, str] = {}  # by the name of a node: what it is called with its domain

    def node(self, line: HostLine) -> Node:
        """The node of a line, with all that the line says of it."""
        return self.named(line.name)._replace(
            slots=line.slots,
            source=line.source,
            max_slots=line.max_slots,
            user=line.user,
            port=line.port,
            spare=line.spare,
        )

    def named(self, name: str) -> Node:
        """The node of a name, and nothing else of it."""
        if name not in self._known:
            short = name if self._keep else _without_domain(name)
            own = "." not in name and not self._keep and short == _without_domain(self._hostname)
            if own or self._is_local(name):
                self._known[name] = Node(self._hostname, None, "", local=True)
            else:
                if short != name and self._whole.setdefault(short, name) != name:
                    short = name  # another host has been cut to this
                if short == self._hostname:  # of another domain
                    short = name
                self._known[name] = Node(short, None, "", address=name if short != name else "")
        return self._known[name]


def naming_of(request: Request, is_local: Callable[[str], bool], hostname: str) -> HostNames:
    """The names of this job's hosts; `hostname` is what this host is called.  Hydra, with a host a rank, cuts none."""
    keep = dict(request.mca).get(KEEP_DOMAINS, "").lower() in YES or any(app.sequence for app in request.apps)
    return HostNames(is_local, hostname, keep)


def first_said(old: Node, new: Node) -> Node:
    """`old`, with the user and port of `new` where it said none, and a spare if either of them says so."""
    return old._replace(
        user=old.user if old.user is not None else new.user,
        port=old.port if old.port is not None else new.port,
        spare=old.spare or new.spare,
    )


def local_first(table: Table) -> list[Node]:
    """The nodes in the order in which they are filled and numbered: this host, then the order of mention (4.1)."""
    return sorted(table.values(), key=lambda node: not node.local)  # stable


def _without_domain(name: str) -> str:
    """`aa.cluster.local` to `aa`; addresses stay whole."""
    if ":" in name or name.replace(".", "").isdigit():
        return name
    return name.partition(".")[0]


def named_node(host: str, allocation: Allocation, naming: HostNames) -> Node:
    """The node that `host` means; what the allocation says of it is kept."""
    try:
        lines = parse_hosts(host)
    except UsageError as error:
        raise UsageError(error.what, SERVICE_HOST, error.todo) from None
    if len(lines) != 1 or lines[0].name[0] in "+^":
        raise UsageError(f"{host!r} is not the name of one host", SERVICE_HOST, "write it like node1, or joe@node1")
    new = naming.node(lines[0])._replace(slots=0, source=SERVICE_HOST)
    for node in (*allocation.nodes, *allocation.spares):
        if node.name == new.name or (node.local and new.local):
            return first_said(node, new)
    return new


# --- relative hosts


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
