"""The nouns of the house, as frozen records: what was asked for, what there is, what goes where, how it ended.

Nothing here does anything; every floor above speaks in these.  Records travel to the agents only as the fields of a
frame (`wire.messages`), never as objects.  The one surprising thing: a `NodePlan` holds the variables that all
ranks of the node share once, and per rank only what differs, so that 64 ranks do not repeat an environment 64 times.
"""

from __future__ import annotations

from mslaunch.lean import NamedTuple

SERVICE = -1  #: stands for the rank of a process that is none, the job's scheduler, in frames and records
FIRST_SERVER = -2  #: the same for the first parameter server; others have the numbers below it

#: what cpus may share, smallest first; a policy names one of these, a `Topology` has a row for each
LEVELS = ("hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "board")


class AppContext(NamedTuple):
    """One executable of the job: what to run, how often, and where it asked to run."""

    argv: tuple[str, ...]
    np: int | None = None  # None: as many as there are slots
    env: tuple[tuple[str, str | None], ...] = ()  # -x, in order; None: the launcher's value; names may hold * and ?
    wdir: str | None = None
    hosts: tuple[str, ...] = ()  # the texts given to -H, one an option
    hostfile: str | None = None
    path: str | None = None  # --path: directories, with colons between, that are searched before PATH
    prefix: str | None = None  # --prefix: DIR/bin and DIR/lib go in front of PATH and LD_LIBRARY_PATH
    preload_binary: bool = False  # -s: the executable is sent to the hosts
    preload_files: tuple[str, ...] = ()  # --preload-files: sent to the hosts
    session_dir: bool = False  # --set-cwd-to-session-dir
    #: variables of the launcher that go to ranks on other hosts: names and patterns; ("*",) is hydra's -genvall, ()
    #: its -genvnone, names its -genvlist.  Ranks on the launching host inherit everything in any case, as with both.
    forward: tuple[str, ...] = ("OMPI_*", "PMIX_*")
    mpi: str = "auto"  # --mpi: auto, pmi1, pmi2, pmix, pmix:PATH (of libpmix), none


class LocalBinding(NamedTuple):
    """What the ranks of each host get by their local ranks: cpus, and NUMA nodes for memory; msrun's bindings.

    All numbers are the kernel's.  A rank that a list has nothing for is not bound in that way.
    """

    even_cpus: bool = False  # an even share each of the cpus of the host, if these are enough
    even_numa: bool = False  # a NUMA node each for memory, if these are enough, and its cpus if no others are said
    cpus: tuple[tuple[int, ...], ...] = ()  # by local rank: its cpus
    numa: tuple[tuple[int, ...], ...] = ()  # by local rank: NUMA nodes, whose cpus it gets if no others are said
    memory: tuple[tuple[int, ...], ...] = ()  # by local rank: NUMA nodes that its memory is taken from
    scheduler: tuple[int, ...] = ()  # NUMA nodes whose cpus the scheduler gets
    where: str = "--bind_core"  # who asked, for refusals


class Policy(NamedTuple):
    """Where ranks may go and which cpus they get; "", None and 0: nobody said, so the rules of Open MPI 4.1 decide."""

    map_by: str = ""  # slot, node, seq, dist, ppr, or one of LEVELS
    ppr: tuple[tuple[int, str], ...] = ()  # with map_by ppr: (ranks, node or one of LEVELS); -N 2 is ((2, "node"),)
    pe: int = 0  # PE=n: cpus (cores, or hwthreads with `hwthread_cpus`) for each rank
    span: bool = False  # SPAN: the nodes are taken as one large one
    device: str = ""  # with map_by dist: the device to be near
    rank_by: str = ""  # slot, node, or one of LEVELS
    rank_how: str = ""  # "", span, fill: modifiers of --rank-by
    oversubscribe: bool | None = None
    nolocal: bool = False
    bind_to: str = ""  # none, one of LEVELS, or with cpu_set: cpu-list (all of them), cpu-list:ordered (one each)
    overload: bool = False  # overload-allowed: several ranks may be bound to one cpu
    if_supported: bool = False  # if-supported: where a host cannot bind, ranks run unbound
    cpu_set: str = ""  # --cpu-set, --cpu-list: `0,2-3`, logical numbers; the others are not used
    hwthread_cpus: bool = False  # --use-hwthread-cpus: a cpu is a hardware thread, not a core
    rankfile: str | None = None
    per_host: int | None = None  # msrun: ranks on each host; 0: slots, and even shares for those that have none
    local: LocalBinding | None = None  # msrun: bound by local rank, whatever is said above


class OutputPolicy(NamedTuple):
    """Where the bytes that ranks print go."""

    directory: str | None = None  # --output-filename
    copy: bool = True  # False: `:nocopy`, files only
    jobid: bool = True  # False: `:nojobid`, DIR/rank.N instead of DIR/1/rank.N
    merge: bool = False  # stderr joins stdout
    tag: str = ""  # before each line: "tag" [1,R]<stdout>:, "detailed", "fullname", "detailed-fullname", "rank" [R]
    prepend: str | None = None  # hydra's -prepend-pattern: instead of a tag, with %r rank, %g, %p node, %h host, %%
    timestamp: bool = False
    style: str = "4.1"  # "5.0": tags and time stamps as that --output writes them, `[1,R]<stdout>: ` with a blank
    pty: str = "auto"  # auto, yes, no
    xml: bool = False  # --xml: all that ranks print as XML, on stdout
    xml_file: str | None = None  # --xml-file: the same in a file
    file: str | None = None  # --output file=F of 5.0: F.RANK.out and F.RANK.err
    outfile: str | None = None  # hydra's -outfile-pattern: a path, with the same letters as `prepend`
    errfile: str | None = None  # hydra's -errfile-pattern
    tee: bool = False  # with these two the terminal shows nothing, unless this is set (msrun's logs)
    xterm: str | None = None  # --xterm: `0,2-3`, -1 for all; a final ! holds the windows
    keep: bool = False  # files of an earlier launch are not emptied but renamed: FILE.1, FILE.2 …
    shown: tuple[int, ...] | None = None  # the ranks whose output reaches the terminal; None: all of them


class LinkPolicy(NamedTuple):
    """How hosts are reached."""

    agent: tuple[str, ...] = ()  # --rsh-agent, split into words; empty: paramiko
    agent_args: tuple[str, ...] = ()  # plm_rsh_args
    accept_new: bool = False  # --ssh-accept-new: trust on first use
    timeout: float = 15.0  # seconds from the first packet to HELLO, for each host
    python: str = "python3"  # the interpreter of the agents
    fanout: int = 32  # hosts that are being connected at one time


class Share(NamedTuple):
    """The part of a job that this launcher starts, where others start the rest: one msrun on each host."""

    size: int  # ranks of the whole job
    first: int | None  # the number of our first rank; None: MindSpore numbers them, when they have met
    address: str  # of the scheduler, an IP address
    port: int
    master: bool  # the scheduler is ours to start


class ClusterPolicy(NamedTuple):
    """How MindSpore's ranks meet: at the scheduler of its Dynamic Cluster."""

    host: str = ""  # --scheduler: the host that it is on; "": that of rank 0
    port: int = 0  # 0: one that is free
    moves: bool = False  # if `port` is taken, the next free one below is as good
    first: bool = False  # it is started before the ranks; False: when one of them knocks at its port
    #: what it runs: "light" MindSpore's extension alone; "ranks" the program of the ranks, as msrun does; "auto": that
    #: program if its text configures the scheduler (set_ps_context), else light
    program: str = "auto"
    servers: int = 0  # --server_num: processes of the Parameter Server mode
    cpus: tuple[int, ...] = ()  # that the scheduler is bound to
    share: Share | None = None
    simulated: bool = False  # MindSpore's dry run: every rank by itself, and no scheduler


class Request(NamedTuple):
    """One command line, understood."""

    apps: tuple[AppContext, ...]
    policy: Policy = Policy()
    output: OutputPolicy = OutputPolicy()
    link: LinkPolicy = LinkPolicy()
    default_hostfile: str | None = None
    stdin: str = "0"  # a rank, "all" or "none"
    timeout: float | None = None  # seconds
    timeout_from: str = "--timeout"  # who said so, for the message: the option, or MPIEXEC_TIMEOUT
    grace: float = 2.0  # seconds between TERM and KILL
    mca: tuple[tuple[str, str], ...] = ()  # communication parameters, for the ranks
    abort_on_failure: bool = True  # orte_abort_on_non_zero_status
    recovery: bool = False  # --enable-recovery, --continuous: the others go on when a rank fails, however it ends
    max_restarts: int = 0  # how often a rank that failed is started again, or all of them
    restart: str = ""  # --restart: "rank", "group" all ranks, "none"; "": "rank" if `max_restarts` says so
    restart_delay: float = 0.0  # seconds from a failure to the new start
    #: --min-ranks: a group that lost hosts may be started again with so many; 0: with all or not at all
    min_ranks: int = 0
    state_on_timeout: bool = False  # --report-state-on-timeout
    stack_traces: bool = False  # --get-stack-traces
    report_pid: str | None = None  # "-" stdout, "+" stderr, or a file
    report_uri: str | None = None  # the same
    index_argv: bool = False  # --index-argv-by-rank: argv[0] of rank 3 ends in -3
    report_bindings: bool = False
    display_map: str = ""  # "map", "table", "devel", "diffable"
    display_allocation: bool = False
    display_topology: bool = False
    do_not_launch: bool = False
    quiet: bool = False
    verbose: bool = False
    cluster: ClusterPolicy = ClusterPolicy()
    detach: bool = False  # the command returns when the ranks run, and the launcher stays (cli/jobs)
    backend: str = ""  # --backend: who starts the ranks; "openmpi", "openmpi:PLACE"; "": we do
    notes: tuple[str, ...] = ()  # what was said and has no effect, a sentence each; the command prints them


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


class Topology(NamedTuple):
    """The cpus of a node that we may use, and what they share.

    `cpus` are the kernel's numbers of the hardware threads in logical order (board by board, socket by socket, …, core
    by core).  `objects` has a row for each of LEVELS: the logical number, from 0, of the object of that level that the
    cpu at this place is in; a row is empty if the machine has no such level (or does not tell).  Objects without a cpu
    that we may use do not count.
    """

    cpus: tuple[int, ...]
    objects: tuple[tuple[int, ...], ...]
    numa: tuple[int, ...] = ()  # the kernel's number of each NUMA node, by logical number; empty: unknown


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
    #: index of the scheduler's node, where it is not that of the first rank; then the last of `nodes` may have no ranks
    service: int = -1
    service_cpus: tuple[int, ...] = ()  # that the scheduler is bound to, if the topology had to be asked for them

    @property
    def first(self) -> int:
        """The number of the first rank; not 0 where other launchers start those before it (`Share`)."""
        return self.placements[0].rank if self.placements else 0


class RankPlan(NamedTuple):
    """What the agent is told of one rank."""

    rank: int
    app: int  # index into NodePlan.apps
    env: tuple[str, ...]  # "NAME=value", on top of NodePlan.env
    cpus: tuple[int, ...] = ()  # the kernel's numbers; empty: not bound
    wrapper: tuple[str, ...] = ()  # words before the program: ("xterm", …, "-e")
    memory: tuple[int, ...] = ()  # the kernel's numbers of the NUMA nodes that its memory is taken from; empty: any


class AppPlan(NamedTuple):
    """What the agent is told of one executable."""

    argv: tuple[str, ...]
    wdir: str
    env: tuple[str, ...] = ()  # "NAME=value": forwarded, -mca, OMPI_COMMAND and its like, -x
    path: str = ""  # directories, with colons between, that are searched before PATH
    front: tuple[str, ...] = ()  # "NAME=value": the value goes in front of what NAME holds, with a colon
    in_session: bool = False  # its ranks start in their session directories
    mpi: str = "auto"  # as AppContext.mpi


class World(NamedTuple):
    """One MPI_COMM_WORLD, as a node is told of it: that of the job, or one that MPI_Comm_spawn has made.

    A *member* of it is written NAME.RANK, with the rank in this world; NAME alone means all of them.
    """

    name: str = "0"  # digits; of all worlds of all jobs its own: the kvsname of PMI, the namespace of PMIx
    first: int = 0  # the rank, as frames have it, of its rank 0; the others follow
    hosts: tuple[str, ...] = ()  # of the nodes that have ranks of it
    ranks: tuple[tuple[int, ...], ...] = ()  # for each of these the ranks, in this world, ascending
    here: int = -1  # index of the node that is told; -1: none of its ranks is there
    sizes: tuple[int, ...] = ()  # ranks of each program
    slots: int = 0  # of the allocation: the universe
    parent: str = ""  # the member of another world that spawned it
    preput: tuple[str, ...] = ()  # key, value, key, value, …: what the parent put into it in advance (PMI)

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return sum(map(len, self.ranks))


class Endpoint(NamedTuple):
    """Where ranks meet: on the host of rank 0, and at the scheduler."""

    address: str
    port: int
    service_port: int
    service_address: str = ""  # "": the same


class ServicePlan(NamedTuple):
    """A process of the job that is no rank: MindSpore's scheduler, or a parameter server."""

    port: int  # that it listens at; 0: it is no scheduler
    env: tuple[str, ...]  # "NAME=value", on top of what the ranks have
    number: int = SERVICE  # stands for a rank in frames
    first: bool = False  # started at once; False: when a rank knocks at the port
    program: str = "light"  # as ClusterPolicy.program
    cpus: tuple[int, ...] = ()  # the kernel's numbers; empty: not bound


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
    session: bool = False  # each rank gets a session directory, with links to the files that were sent
    index_argv: bool = False  # argv[0] of rank 3 ends in -3
    world: World = World()


class RankStatus(NamedTuple):
    """How one rank ended."""

    rank: int  # counted through all worlds: those of a world that MPI_Comm_spawn made follow on the ranks before
    host: str
    pid: int | None = None
    code: int | None = None  # exit code, or None if a signal ended it or it never ran
    signal: int | None = None
    reason: str = ""  # "" by itself; "ended" by mslaunch; "lost" with its host; "not started"; "running"
    stdout: str | None = None  # path of its log
    stderr: str | None = None
    world: int = 1  # the number of its MPI_COMM_WORLD; 2 and more: MPI_Comm_spawn made it

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


class Attempt(NamedTuple):
    """A start of all ranks that failed, after which they were started again."""

    number: int  # from 1
    failure: Failure
    seconds: float  # since the launch began
    changed: str = ""  # what is different in the next one: "node04 takes the place of node02"


class Outcome(NamedTuple):
    """How the job ended; the command's exit code is `code`."""

    code: int
    ranks: tuple[RankStatus, ...]
    failure: Failure | None = None
    seconds: float = 0.0
    attempts: tuple[Attempt, ...] = ()  # those before the last
    restarts: tuple[str, ...] = ()  # what was started again by itself, a clause each: "rank 1 on n01 (…)"
    services: tuple[RankStatus, ...] = ()  # of what was no rank: `rank` is SERVICE for the scheduler, and below

    @property
    def ok(self) -> bool:
        """True if every rank ended with 0 and nothing else went wrong."""
        return self.code == 0 and self.failure is None
