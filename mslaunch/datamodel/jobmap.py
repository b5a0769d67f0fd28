"""The job map as records: which rank goes to which node, and where ranks meet."""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_NODE
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mslaunch.datamodel.hosts import Node


class Placement(NamedTuple):
    """One row of the map."""

    rank: int
    app: int  # index into Request.apps
    node: int  # index into JobMap.nodes
    local_rank: int
    cpus: tuple[int, ...] = ()  # the kernel's numbers of the cpus it is bound to; empty: not bound
    locale: tuple[str, int] = ("", 0)  # level and logical number of the object it was mapped to; "": the whole node
    memory: tuple[int, ...] = ()  # the kernel's numbers of the NUMA nodes that its memory is taken from; empty: any


class JobMap(NamedTuple):
    """rank -> node."""

    nodes: tuple[Node, ...]  # only those that got a rank, in node order
    placements: tuple[Placement, ...]  # in rank order
    slots: int  # of the whole allocation: OMPI_UNIVERSE_SIZE
    oversubscribed: bool = False
    #: the node of the services, where it is not that of the first rank; then the last of `nodes` may have no ranks
    service: int = NO_NODE
    service_cpus: tuple[int, ...] = ()  # that the first service is bound to, if the topology had to be asked for them

    @property
    def service_node(self) -> int:
        """The node of the services, in any case."""
        return self.placements[0].node if self.service == NO_NODE else self.service

    @property
    def first(self) -> int:
        """The number of the first rank; not 0 where other launchers start those before it (`Share`)."""
        return self.placements[0].rank if self.placements else 0


class Endpoint(NamedTuple):
    """Where ranks meet: on the host of rank 0, and at the first service."""

    address: str
    port: int
    service_port: int
    service_address: str = ""  # "": the same
