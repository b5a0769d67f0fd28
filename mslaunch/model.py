"""The nouns of the house, as frozen records: what was asked for, what there is, what goes where, how it ended.

Nothing here does anything; every floor above speaks in these.  Records travel to the agents only as the fields of a
frame (`wire.messages`), never as objects.  The one surprising thing: a `NodePlan` holds the variables that all
ranks of the node share once, and per rank only what differs, so that 64 ranks do not repeat an environment 64 times.
"""

from __future__ import annotations

from mslaunch.lean import NamedTuple

SERVICE = -1  #: stands for "no rank" where a frame or a record needs a rank: the job's scheduler


class AppContext(NamedTuple):
    """One executable of the job: what to run, how often, and where it asked to run."""

    argv: tuple[str, ...]
    np: int | None = None  # None: as many as there are slots
    env: tuple[tuple[str, str | None], ...] = ()  # -x, in order; None: the launcher's value; names may hold * and ?
    wdir: str | None = None
    hosts: tuple[str, ...] = ()  # the texts given to -H, one an option
    hostfile: str | None = None


class Policy(NamedTuple):
    """Where ranks may go."""

    map_by: str = "slot"  # slot, node
    per_node: int | None = None  # -N
    oversubscribe: bool = False
    bind_to: str = "none"  # none, core


class OutputPolicy(NamedTuple):
    """Where the bytes that ranks print go."""

    directory: str | None = None  # --output-filename
    copy: bool = True  # False: `:nocopy`, files only
    jobid: bool = True  # False: `:nojobid`, DIR/rank.N instead of DIR/1/rank.N
    merge: bool = False  # stderr joins stdout
    tag: bool = False
    timestamp: bool = False
    pty: str = "auto"  # auto, yes, no


class LinkPolicy(NamedTuple):
    """How hosts are reached."""

    agent: tuple[str, ...] = ()  # --rsh-agent, split into words; empty: paramiko
    agent_args: tuple[str, ...] = ()  # plm_rsh_args
    accept_new: bool = False  # --ssh-accept-new: trust on first use
    timeout: float = 15.0  # seconds from the first packet to HELLO, for each host
    python: str = "python3"  # the interpreter of the agents
    fanout: int = 32  # hosts that are being connected at one time


class Request(NamedTuple):
    """One command line, understood."""

    apps: tuple[AppContext, ...]
    policy: Policy = Policy()
    output: OutputPolicy = OutputPolicy()
    link: LinkPolicy = LinkPolicy()
    default_hostfile: str | None = None
    stdin: str = "0"  # a rank, "all" or "none"
    timeout: float | None = None  # seconds
    grace: float = 2.0  # seconds between TERM and KILL
    mca: tuple[tuple[str, str], ...] = ()  # communication parameters, for the ranks
    abort_on_failure: bool = True  # orte_abort_on_non_zero_status
    display_map: bool = False
    display_allocation: bool = False
    do_not_launch: bool = False
    quiet: bool = False
    verbose: bool = False


class HostLine(NamedTuple):
    """One host as a hostfile line or an entry of -H names it; `node[01-16]` has become sixteen of these."""

    name: str  # without user@ and without the brackets of an IPv6 address
    slots: int | None = None  # None: not said
    max_slots: int | None = None
    user: str | None = None
    port: int | None = None
    source: str = ""  # who said so: "hosts:3", "-H"


class Node(NamedTuple):
    """A host we may use."""

    name: str
    slots: int | None  # None: as many as the host has cores, known when its agent says HELLO
    source: str  # where the number of slots came from: "hosts:3", "-H", "cores"
    max_slots: int | None = None
    user: str | None = None
    port: int | None = None
    local: bool = False  # reached by fork


class Allocation(NamedTuple):
    """The nodes and slots given to us, in order."""

    nodes: tuple[Node, ...]
    declared: bool  # False: plain local mode, nobody named a host
    apps: tuple[tuple[int, ...], ...] = ()  # per app context: indices of its nodes; empty: all may use all


class Placement(NamedTuple):
    """One row of the map."""

    rank: int
    app: int  # index into Request.apps
    node: int  # index into JobMap.nodes
    local_rank: int
    cpus: tuple[int, ...] = ()  # indices into the node's usable cpus; empty: not bound


class JobMap(NamedTuple):
    """rank -> node."""

    nodes: tuple[Node, ...]  # only those that got a rank, in node order
    placements: tuple[Placement, ...]  # in rank order
    slots: int  # of the whole allocation: OMPI_UNIVERSE_SIZE
    oversubscribed: bool = False


class RankPlan(NamedTuple):
    """What the agent is told of one rank."""

    rank: int
    app: int  # index into NodePlan.apps
    env: tuple[str, ...]  # "NAME=value", on top of NodePlan.env
    cpus: tuple[int, ...] = ()


class AppPlan(NamedTuple):
    """What the agent is told of one executable."""

    argv: tuple[str, ...]
    wdir: str
    env: tuple[str, ...] = ()  # "NAME=value": -x


class ServicePlan(NamedTuple):
    """A process of the job that is no rank and is started only when a rank knocks at its port."""

    kind: str  # "mindspore"
    port: int
    address: str  # where ranks look for it
    env: tuple[str, ...]


class NodePlan(NamedTuple):
    """What one agent is told."""

    ranks: tuple[RankPlan, ...]
    apps: tuple[AppPlan, ...]
    env: tuple[str, ...]  # "NAME=value", for every rank of the node
    defaults: tuple[str, ...] = ()  # "NAME=value", where nothing else gave NAME a value
    scrub: tuple[str, ...] = ()  # names and NAME* patterns that must not be inherited from the agent's environment
    services: tuple[ServicePlan, ...] = ()
    stdin: tuple[int, ...] = ()  # the ranks whose standard input is a pipe; the others read /dev/null
    merge: bool = False
    pty: str = "auto"
    grace: float = 2.0


class RankStatus(NamedTuple):
    """How one rank ended."""

    rank: int
    host: str
    pid: int | None = None
    code: int | None = None  # exit code, or None if a signal ended it or it never ran
    signal: int | None = None
    reason: str = ""  # "" by itself; "ended" by mslaunch; "lost" with its host; "not started"
    stdout: str | None = None  # path of its log
    stderr: str | None = None

    @property
    def status(self) -> int:
        """The shell's number: the exit code, or 128 + the signal."""
        return 128 + self.signal if self.signal else self.code or 0


class Failure(NamedTuple):
    """The first cause."""

    what: str
    host: str = ""
    rank: int | None = None
    code: int = 1
    detail: tuple[str, ...] = ()  # its last lines of stderr, or what to do


class Outcome(NamedTuple):
    """How the job ended; the command's exit code is `code`."""

    code: int
    ranks: tuple[RankStatus, ...]
    failure: Failure | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if every rank ended with 0 and nothing else went wrong."""
        return self.code == 0 and self.failure is None
