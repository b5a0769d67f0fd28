"""The contract between a framework and its launcher: what a framework gets, and what it asks for.

A framework is one `Framework`, in a file of its own unless it is one line, and one row in `table.FRAMEWORKS`.  Its
functions are pure, and return names and values of variables.  Two frameworks that set one variable differently are an
error.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import NodeStore
    from mslaunch.datamodel.node_plan import ServicePlan
    from mslaunch.datamodel.request import ServicePolicy

    Variables = Mapping[str, object]


class RankInfo(NamedTuple):
    """Where a rank is, among how many, and in which of the job's programs."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int  # number of its node, among those that have ranks
    nodes: int
    slots: int  # of the allocation
    address: str  # where ranks meet, an IP address of rank 0's host
    port: int
    service_port: int
    job: int = 0  # a number of this launch, below 2 ** 32
    sizes: tuple[int, ...] = ()  # ranks of each program
    bound: bool = False  # to some of the node's cpus
    crowded: bool = False  # its node has more ranks than slots
    service_address: str = ""  # of the services; "": `address`
    servers: int = 0  # services besides the first
    simulated: bool = False  # a dry run of the framework's: each rank by itself, without services
    role: str = ""  # what the process is if it is no rank: "scheduler", "server"
    numbered: bool = True  # False: its rank, and the number of its node, are only known when all ranks have met
    even_cpus: tuple[int, ...] = ()  # its share, where the cpus of each host are shared out evenly by local rank
    #: on the host of rank 0, for each framework that asks for a port of its own; none where other launchers start a
    #: part of the job, since they could not know them
    own_ports: tuple[int, ...] = ()
    own_port: int = 0  # of these the one of the framework that is asked (`job`); 0: none
    jobid: str = ""  # of the launch, as in MSLAUNCH_JOBID; "": unknown
    attempt: int = 1
    max_restarts: int = 0
    devices: int = 0  # accelerators that the rank has for itself; 0: nothing was said
    host: str = ""  # name of its node
    cross_rank: int = 0  # number of its node, among those that have a rank with its local rank
    cross_size: int = 1  # how many these are
    store: NodeStore | None = None  # the key store as its node serves it; None: nobody has asked for one
    asked: tuple[str, ...] = ()  # words of `on_request.ON_REQUEST` that the user has named (--env-for)
    rank_addresses: tuple[str, ...] = ()  # HOST:PORT of each rank, where a framework wants one; (): none are known


class Blank:
    """A number in the place of many ranks at once, which each of them has otherwise.

    A framework may use it as the value of a variable, and for nothing else: all else that could be done with it fails.
    """

    def _refuse(self, *_: object) -> Any:
        raise TypeError("the number of a rank or a node is not known yet: it can only be the value of a variable")

    __bool__ = __eq__ = __format__ = __repr__ = __str__ = _refuse
    __hash__ = None  # type: ignore[assignment]


RANK: Any = Blank()  #: as `RankInfo.rank` of many ranks
NODE: Any = Blank()  #: as `RankInfo.node` of many nodes


class ProgramInfo(NamedTuple):
    """One of the job's programs, the same for all of its ranks."""

    number: int  # from 0
    argv: tuple[str, ...]
    wdir: str  # where its ranks start


class ServiceInfo(NamedTuple):
    """What is said of a service, and what its failure means."""

    name: str  # of its session directory and its logs
    title: str  # in messages
    note: str  # for a reader who has never heard of it
    listens: bool = False  # ranks connect to it, so it is ready once it listens; False: once it runs
    restarts: bool = False  # it can be started again alone, since ranks tell it again what it knew


class Framework(NamedTuple):
    """One framework; what it has no need of is left out."""

    name: str
    #: a program whose text has one of these is one of this framework; its ranks are not bound unless somebody says so,
    #: since their threads need more than a core.  None: the defaults of Open MPI hold
    words: tuple[str, ...] = ()
    scrub: tuple[str, ...] = ()  # names, and NAME* patterns, that a launch around this one may have left behind
    forward: tuple[str, ...] = ()  # the launcher's variables that ranks on all hosts get
    #: variables of all ranks of a node.  Here and in `rank`, what is alike in a job is asked for once: so `place.rank`
    #: and `place.node` may be a `Blank`, unless each rank has addresses of its own (`store`, `rank_addresses`)
    job: Callable[[RankInfo], Variables] = lambda place: {}
    program: Callable[[ProgramInfo], Variables] = lambda program: {}  # of all ranks of a program
    rank: Callable[[RankInfo], Variables] = lambda place: {}  # of one rank
    #: for a rank that has no value of its own: number of ranks, what the user gave (strongest first), whether failed
    #: ranks are started again
    defaults: Callable[[int, Sequence[Mapping[str, str]], bool], Variables] = lambda size, given, restarts: {}
    #: "NAME=value" for a rank that has no value of its own, has its host for itself, and is not bound (`words`)
    lone: tuple[str, ...] = ()
    together: tuple[str, ...] = ()  #: names among `defaults` of which a rank gets none if the user gave one of them
    #: variables that get the address of a port, which is held before the ranks start, and probed from the other hosts:
    #: a free port on the host of rank 0 (`RankInfo.port`), and the port of the services (`service_port`); "": no port.
    #: Of each kind a job has one
    port: str = ""
    service_port: str = ""
    own_port: bool = False  # one more port on the host of rank 0 is held for this framework alone
    rank_port: bool = False  # each rank has a port on its host (`RankInfo.rank_addresses`); only in `ON_REQUEST`
    services: Callable[[RankInfo, ServicePolicy], tuple[ServicePlan, ...]] = lambda place, policy: ()
    service: Callable[[int], ServiceInfo] | None = None  # about the service with this id; None: it has none
    #: the scopes of its key store, and of each the node of its numbers: who may write what, and how many must be done
    #: before it is emptied; made of the names of nodes, and the node of each rank
    scopes: Callable[[Sequence[str], Sequence[int]], Mapping[str, Sequence[int]]] = lambda hosts, nodes: {}
