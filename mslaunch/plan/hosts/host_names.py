"""The node that a host's name stands for: this host under all of its names, others without their domain.

As in Open MPI 4.1 a name is cut at its first dot unless orte_keep_fqdn_hostnames is set, so `aa` and
`aa.cluster.local` are one node.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Node
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.jobmap import HostLine
    from mslaunch.datamodel.request import Request

    Table = dict[str, Node]  # by name, in the order of first mention

KEEP_DOMAINS = "orte_keep_fqdn_hostnames"
YES = frozenset(("1", "true", "yes", "t", "y", "on", "enabled"))  #: what Open MPI's boolean parameters take


class HostNames:
    """Names to nodes; `hostname` is what this host is called."""

    def __init__(self, is_local: Callable[[str], bool], hostname: str, keep_domains: bool) -> None:
        self._is_local = is_local
        self._hostname = hostname
        self._keep = keep_domains
        self._known: dict[str, Node] = {}

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
        bare = self._known.get(name)
        if bare is None:
            short = name if self._keep else _without_domain(name)
            if self._is_local(name) or (not self._keep and short == _without_domain(self._hostname)):
                bare = Node(self._hostname, None, "", local=True)
            else:
                bare = Node(short, None, "")
            self._known[name] = bare
        return bare


def naming_of(request: Request, is_local: Callable[[str], bool], hostname: str) -> HostNames:
    """The names of this job's hosts; `hostname` is what this host is called."""
    return HostNames(is_local, hostname, dict(request.mca).get(KEEP_DOMAINS, "").lower() in YES)


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
