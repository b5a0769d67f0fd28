"""Hosts, the allocation that they make, and the job map, which says the node of each rank: records."""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_NODE, NodeId
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class HostLine(NamedTuple):
    """One host as a hostfile line or an entry of -H names it; `node[01-16]` has become sixteen of these."""

    name: str  # without user@ and without the brackets of an IPv6 address
    slots: int | None = None  # None: not said
    max_slots: int | None = None
    user: str | None = None
    port: int | None = None
    source: str = ""  # who said so: "hosts:3", "-H"
    spare: bool = False  # it replaces a host that is lost


class Node(NamedTuple):
    """A host we may use."""

    name: str
    slots: int | None  # None: as many as the host has cores, known when its agent says HELLO
    source: str  # where the number of slots came from: "hosts:3", "-H", "cores"
    max_slots: int | None = None
    user: str | None = None
    port: int | None = None
    local: bool = False  # reached by fork
    spare: bool = False  # gets ranks only in place of a host that was lost
    address: str = ""  # what it is called to be reached, as it was typed; "": its name

    @property
    def called(self) -> str:
        """What a transport calls it."""
        return self.address or self.name


class RankLine(NamedTuple):
    """One line of a rankfile."""

    rank: int
    host: str  # as it is written
    cpus: str  # its slot=, without blanks
    source: str = ""  # "ranks:3"
    node: int = -1  # index into Allocation.nodes, once that is known


class Allocation(NamedTuple):
    """The nodes and slots given to us, in order."""

    nodes: tuple[Node, ...]
    declared: bool  # False: plain local mode, nobody named a host
    apps: tuple[tuple[int, ...], ...] = ()  # per app context: indices of its nodes; empty: all may use all
    sequences: tuple[tuple[int, ...], ...] = ()  # per app context: its nodes line by line, repeats kept (--map-by seq)
    ranks: tuple[RankLine, ...] = ()  # the lines of the rankfile, which makes the allocation
    spares: tuple[Node, ...] = ()  # hosts that stand by; none of them is among `nodes`, and nobody calls them yet

    def with_cores(self, cores: Mapping[str, int]) -> Allocation:
        """The same nodes, those without a number of slots given one a core; `cores` is by node name."""
        nodes = tuple(
            node._replace(slots=cores[node.name], source=f"cores of {node.name}")
            if node.slots is None and node.name in cores
            else node
            for node in self.nodes
        )
        return self._replace(nodes=nodes)


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
    service: NodeId = NO_NODE
    service_cpus: tuple[int, ...] = ()  # that the first service is bound to, if the topology had to be asked for them

    def by_node(self) -> list[list[Placement]]:
        """The placements on each of `nodes`, in rank order."""
        rows: list[list[Placement]] = [[] for _ in self.nodes]
        for placement in self.placements:
            rows[placement.node].append(placement)
        return rows

    @property
    def service_node(self) -> NodeId:
        """The node of the services, in any case."""
        return NodeId(self.placements[0].node) if self.service == NO_NODE else self.service

    @property
    def first(self) -> int:
        """The number of the first rank; not 0 where other launchers start those before it (`Share`)."""
        return self.placements[0].rank if self.placements else 0


class NodeStore(NamedTuple):
    """A node's server of the job's key store."""

    port: int  # at 127.0.0.1
    token: str  # with which requests begin
    interface: str = ""  # of the network that this node shares with rank 0's host; "": unknown


class RankPorts(NamedTuple):
    """Where the ranks of a node can be reached, by local rank."""

    address: str
    ports: tuple[int, ...]


class Endpoint(NamedTuple):
    """Where ranks meet: on the host of rank 0, and at the first service."""

    address: str
    port: int
    service_port: int
    service_address: str = ""  # "": the same
    hosts: tuple[str, ...] = ()  # addresses whose ranks may connect to a service, as in ServicePlan
    own_ports: tuple[int, ...] = ()  # of single frameworks, on the host of rank 0
    stores: Mapping[int, NodeStore] = {}  # by node, where a key store is served
    rank_ports: Mapping[int, RankPorts] = {}  # by node, where each rank wants a port
