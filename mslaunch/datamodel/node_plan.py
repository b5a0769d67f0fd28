"""The plan of a node as records, which is all that one agent gets; and the ids of nodes, ranks and services.

Records travel as the fields of a frame (`protocol.control`), never as objects.  What all ranks of a node share stands
in it once, so that 64 ranks do not repeat an environment 64 times.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import NewType

    NodeId = NewType("NodeId", int)  # index into JobMap.nodes
    RankId = NewType("RankId", int)  # from 0, counted through all worlds of a launch
    ServiceId = NewType("ServiceId", int)  # SERVICE_BASE and below
else:
    NodeId = RankId = ServiceId = int

JOB_MARK = "MSLAUNCH_JOBID="  #: with the id of the job: the variable by which all of its processes are found
NODE_MARK = "MSLAUNCH_NODE="  #: with ID@NODE: the same for one node, for two may be on one host
NO_NODE = NodeId(-1)
NO_RANK = RankId(-1)  #: in frames: the frame concerns the node
SERVICE_BASE = ServiceId(-2)  #: the id of the first service; the next one is -3, and so on

ANY_HOST = "*"  #: in place of the addresses of hosts that nobody here knows
#: variables of proxies (curl(1), urllib.request of Python, gRPC's environment_variables.md), which programs look for in
#: either case, and where the hosts stand that are reached without one
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
NO_PROXY = ("no_proxy", "NO_PROXY")


def is_rank(number: int) -> bool:
    """Whether this id of a process is that of a rank."""
    return number >= 0


def is_service(number: int) -> bool:
    """Whether this id of a process is that of a service."""
    return number <= SERVICE_BASE


class RankPlan(NamedTuple):
    """One rank."""

    rank: RankId
    app: int  # index into NodePlan.apps
    env: tuple[str, ...]  # "NAME=value", on top of NodePlan.env
    cpus: tuple[int, ...] = ()  # the kernel's numbers; empty: not bound
    wrapper: tuple[str, ...] = ()  # words before the program: ("xterm", …, "-e")
    memory: tuple[int, ...] = ()  # the kernel's numbers of the NUMA nodes that its memory is taken from; empty: any


class AppPlan(NamedTuple):
    """One executable."""

    argv: tuple[str, ...]
    wdir: str
    env: tuple[str, ...] = ()  # "NAME=value": forwarded, -mca, OMPI_COMMAND and its like, -x
    path: str = ""  # directories, with colons between, that are searched before PATH
    front: tuple[str, ...] = ()  # "NAME=value": the value goes in front of what NAME holds, with a colon
    in_session: bool = False  # its ranks start in their session directories
    mpi: str = "auto"  # as AppContext.mpi


class World(NamedTuple):
    """One MPI_COMM_WORLD as a node sees it: that of the job, or one that MPI_Comm_spawn has made.

    A *member* of it is written NAME.RANK, with the rank in this world; NAME alone means all of them.
    """

    #: digits, a hyphen, a secret, an @ and digits (`make_world`); of all worlds of all jobs its own: the kvsname of
    #: PMI, the namespace of PMIx
    name: str = "0"
    first: int = 0  # the rank, as frames have it, of its rank 0; the others follow
    hosts: tuple[str, ...] = ()  # of the nodes that have ranks of it
    ranks: tuple[tuple[int, ...], ...] = ()  # for each of these the ranks, in this world, ascending
    here: int = -1  # index of this node in `hosts`; -1: none of its ranks is here
    sizes: tuple[int, ...] = ()  # ranks of each program
    slots: int = 0  # of the allocation: the universe
    parent: str = ""  # the member of another world that spawned it
    preput: tuple[str, ...] = ()  # key, value, key, value, …: what the parent put into it in advance (PMI)

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return sum(map(len, self.ranks))

    @property
    def number(self) -> int:
        """The part of its name that may be known to others."""
        return int(self.name.partition("-")[0])


class ServicePlan(NamedTuple):
    """A service, a process of the job that is not a rank, as its framework describes it."""

    port: int  # that it listens at; 0: at none
    env: tuple[str, ...]  # "NAME=value", on top of what the ranks have
    number: ServiceId = SERVICE_BASE  # its id
    first: bool = False  # started before the ranks; False: when somebody connects to the port
    program: str = "light"  # as ServicePolicy.program
    cpus: tuple[int, ...] = ()  # the kernel's numbers; empty: not bound
    hint: str = ""  # a word: where it stands in a Python program of the job, the service is started with the ranks
    name: str = "service"  # of its session directory
    kind: str = ""  # its row in the agent's table of kinds: what it runs
    hosts: tuple[str, ...] = ()  # addresses of the job's other hosts, whose ranks connect to it; or ANY_HOST


class NodePlan(NamedTuple):
    """What one agent starts, and how."""

    ranks: tuple[RankPlan, ...]
    apps: tuple[AppPlan, ...]
    env: tuple[str, ...]  # "NAME=value", for every rank of the node
    defaults: tuple[str, ...] = ()  # "NAME=value", where nothing else gave NAME a value
    together: tuple[str, ...] = ()  # names among these: where one of them is given, none of the others is set
    scrub: tuple[str, ...] = ()  # names and NAME* patterns that must not be inherited from the agent's environment
    services: tuple[ServicePlan, ...] = ()
    stdin: tuple[RankId, ...] = ()  # the ranks whose standard input is a pipe; the others read /dev/null
    merge: bool = False
    pty: str = "auto"
    grace: float = 2.0
    term_to: str = "rank"  # who gets TERM: "rank", or "group", its process group
    session: bool = False  # each rank gets a session directory, with links to the files that were sent
    index_argv: bool = False  # argv[0] of rank 3 ends in -3
    world: World = World()
    direct: tuple[str, ...] = ()  # hosts and addresses of the job, which ranks are not to ask a proxy for
