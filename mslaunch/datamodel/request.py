"""The request: one command line, understood, as frozen records; and the process or API call that launches."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mslaunch.datamodel.jobmap import HostLine


class AppContext(NamedTuple):
    """One executable of the job: what to run, how often, and where it asked to run."""

    argv: tuple[str, ...]
    np: int | None = None  # None: as many as there are slots
    env: tuple[tuple[str, str | None], ...] = ()  # -x, in order; None: the launcher's value; names may hold * and ?
    wdir: str | None = None
    hosts: tuple[str, ...] = ()  # the texts given to -H, one an option
    hostfile: str | None = None
    sequence: tuple[HostLine, ...] = ()  # instead of `hosts`, the host of each rank
    path: str | None = None  # --path: directories, with colons between, that are searched before PATH
    prefix: str | None = None  # --prefix: DIR/bin and DIR/lib go in front of PATH and LD_LIBRARY_PATH
    preload_binary: bool = False  # -s: the executable is sent to the hosts
    preload_files: tuple[str, ...] = ()  # --preload-files: sent to the hosts
    session_dir: bool = False  # --set-cwd-to-session-dir
    #: variables of the launcher that go to ranks on other hosts: names and patterns; ("*",) is hydra's -genvall, ()
    #: its -genvnone, names its -genvlist.  Ranks on the launching host inherit everything in any case, as with both.
    forward: tuple[str, ...] = ("OMPI_*", "PMIX_*")
    mpi: str = "auto"  # --mpi: auto, pmi1, pmi2, pmix, pmix:PATH (of libpmix), none
    ready: int = 0  # --ready: programs behind it start once its first rank listens there; -1: at MASTER_PORT


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

    map_by: str = ""  # slot, node, seq, rounds (hydra's), dist, ppr, or one of LEVELS
    ppr: tuple[tuple[int, str], ...] = ()  # with map_by ppr: (ranks, node or one of LEVELS); -N 2 is ((2, "node"),)
    pe: int = 0  # PE=n: cpus (cores, or hwthreads with `hwthread_cpus`) for each rank
    span: bool = False  # SPAN: the nodes are taken as one large one
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
    ppn: int = 0  # with map_by rounds: ranks of a host in each round; 0: its slots
    per_host: int | None = None  # msrun: ranks on each host; 0: slots, and even shares for those that have none
    local: LocalBinding | None = None  # msrun: bound by local rank, whatever is said above
    nodes: tuple[int, int] | None = (
        None  # torchrun, with `per_host`: the fewest hosts, and the most; 0: all that there are
    )


class StreamPolicy(NamedTuple):
    """What becomes of each stream of a rank, by its local rank: torchrun's --redirects, --tee and --local-ranks-filter.

    Pairs of a local rank, or -1 for all, and a sum of 1 for stdout and 2 for stderr; the first that fits counts.
    """

    redirects: tuple[tuple[int, int], ...] = ()  # to a file, not to the terminal
    tee: tuple[tuple[int, int], ...] = ()  # to a file, and with a prefix to the terminal
    shown: tuple[int, ...] | None = None  # local ranks whose output reaches the terminal; None: all of them
    folder: str = ""  # pattern of each rank's directory below the one for logs, with %t for the restarts before
    made: bool = False  # the directory for logs is ours: it goes again if nothing is in it


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
    fold: bool = False  # --fold: equal lines of ranks are shown once
    rank_logs: str | None = None  # torchrun's --log-dir, with `streams`
    streams: StreamPolicy | None = None

    @property
    def paths(self) -> list[str]:
        """What was given to options that name log files."""
        named = (self.directory, self.file, self.outfile, self.errfile, self.rank_logs)
        return [path for path in named if path is not None]

    @property
    def needs_addresses(self) -> bool:
        """Whether a pattern has %a: hosts must be connected before files are opened."""
        return any("%a" in (text or "").replace("%%", "") for text in (self.outfile, self.errfile, self.prepend))

    @property
    def has_prefix(self) -> bool:
        """Whether each line gets a tag or a time stamp."""
        return bool(self.tag or self.prepend or self.timestamp)

    @property
    def as_xml(self) -> bool:
        """Whether all that ranks print becomes an XML document."""
        return self.xml or self.xml_file is not None


class DevicePolicy(NamedTuple):
    """Which accelerators ranks get."""

    each: int = 0  # --devices-per-rank; 0: all ranks of a node get the same
    names: tuple[str, ...] = ()  # --devices: of those of each node; (): all

    @property
    def asked(self) -> bool:
        """Whether anything was said."""
        return bool(self.each or self.names)


class LinkPolicy(NamedTuple):
    """How hosts are reached."""

    agent: tuple[str, ...] = ()  # --rsh-agent, split into words; empty: paramiko
    agent_args: tuple[str, ...] = ()  # plm_rsh_args
    accept_new: bool = False  # --ssh-accept-new: trust on first use
    timeout: float = 15.0  # seconds from the first packet to HELLO, for each host
    wait: float | None = (
        None  # seconds in which a host that may only be starting is tried again; None: as its system has it
    )
    python: str = "python3"  # the interpreter of the agents
    fanout: int = 32  # hosts that are being connected at one time
    asked: str = ""  # the transport that the user asked for; "": that of the resource manager, or ssh
    granted: str = ""  # the transport that a resource manager names
    heartbeat: float = 0.0  # seconds after which an idle side sends a sign of life; 0: as `pace` says
    lease: float = 15.0  # seconds of silence after which the other side is given up; 0: never

    @property
    def pace(self) -> float:
        """The heartbeat that counts, in seconds."""
        return self.heartbeat or min(5.0, self.lease / 3)

    @property
    def transport(self) -> str:
        """The word of the transport for other hosts (`transport.transport_table`)."""
        return "rsh" if self.agent else self.asked or self.granted or "ssh"


class Share(NamedTuple):
    """The part of a job that this launcher starts, where others start the rest: one msrun on each host."""

    size: int  # ranks of the whole job
    first: int | None  # the number of our first rank; None: the framework numbers them, when they have met
    address: str  # of the services, an IP address
    port: int
    master: bool  # the services are ours to start
    by_operator: bool = False  # an operator of Kubernetes starts the other parts, each in a pod of its own
    role: str = ""  # what our one process is if it is no rank: "scheduler", "server"
    meeting: int = 0  # the port of rank 0's host where ranks meet, if that is known; 0: any
    node: int = 0  # the number of this host, and how many there are, if each may have another number of ranks
    nodes: int = 0  # 0: each has as many as this one


class HostMeeting(NamedTuple):
    """Commands on several hosts that start one job together: where and how they meet."""

    host: str  # the endpoint as it was written
    address: str  # and as an IP address
    port: int
    hosts_meeting: bool  # it is on this host
    least: int  # hosts
    most: int
    ranks: int  # of this one
    run_id: str
    secret_file: str
    join_seconds: float = 600.0
    last_call: float = 30.0  # seconds for more than the fewest
    restarts: int = 0  # how often all ranks are started again; all commands say the same
    number: int | None = None  # of this host, where hosts have numbers; ranks then meet at the port of the endpoint

    @property
    def where(self) -> str:
        """The endpoint in messages."""
        return f"{self.host} port {self.port}"


class ServicePolicy(NamedTuple):
    """The services of a job, at which its ranks meet: where they are, when they start and what they run."""

    host: str = ""  # --scheduler: the host that they are on; "": that of rank 0
    port: int = 0  # of the first; 0: one that is free
    moves: bool = False  # if `port` is taken, the next free one below is as good
    first: bool = False  # the first is started before the ranks; False: when one of them connects to its port
    #: what the first runs: "light" a program of the framework's own; "ranks" the program of the ranks, as msrun does;
    #: "auto": that program if its text configures the service, else light
    program: str = "auto"
    servers: int = 0  # --server_num: services besides the first
    cpus: tuple[int, ...] = ()  # that the first is bound to
    share: Share | None = None
    host_meeting: HostMeeting | None = None  # the share is known when all have met; until then it is that of the first
    simulated: bool = False  # a dry run of the framework's: every rank by itself, and no services
    meeting: int = 0  # the port at which ranks meet, on rank 0's host; 0: any that is free


class MonitorPolicy(NamedTuple):
    """What is told of a launch while it runs, and kept of it."""

    events: str = ""  # --events: a file
    on_event: tuple[str, ...] = ()  # --on-event: a command, split into words
    record: str = ""  # --record: a directory for run.json; "": that of the logs, if they have one; "none"
    metrics: str = ""  # --metrics: a file for node_exporter
    progress: str = "auto"  # --progress: auto, yes, no, plain

    @property
    def asked(self) -> bool:
        """Whether a file or a command was named."""
        return bool(self.events or self.on_event or self.metrics or self.record not in ("", NO_RECORD))


NO_RECORD = "none"  #: --record none


class HangPolicy(NamedTuple):
    """When a job counts as hung, and what is done then."""

    seconds: float = 0.0  # --hang-timeout: no rank has printed anything for so long; 0: no watch is kept
    then: str = ""  # --on-hang: "end", "restart" as after a failure, "report"; "": "end"


NO_HOSTFILE = "none"  #: --default-hostfile none: as if nobody had named one (ompi_info, orte_default_hostfile)
READY_SECONDS = 300.0  #: for a rank, from its start until it listens at the port of --ready
DEFAULT_SLOTS = "orte_set_default_slots"  # a parameter of mpirun: the slots of hosts for which none are given


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
    term_to: str = ""  # --term-to: who gets TERM; "rank", "group" the rank's process group; "": "rank"
    warn: tuple[int, float] | None = None  # --warn: a signal, and how many seconds before the timeout it is sent
    mca: tuple[tuple[str, str], ...] = ()  # communication parameters, for the ranks
    abort_on_failure: bool = True  # orte_abort_on_non_zero_status
    recovery: bool = False  # --enable-recovery, --continuous: the others go on when a rank fails, however it ends
    max_restarts: int = 0  # how often a rank that failed is started again, or all of them
    restart: str = ""  # --restart: "rank", "group" all ranks, "none"; "": "rank" if `max_restarts` says so
    restart_delay: float = 0.0  # seconds from a failure to the new start
    #: --min-ranks: a group that lost hosts may be started again with so many; 0: with all or not at all
    min_ranks: int = 0
    max_restart_delay: float = 0.0  # --max-restart-delay: up to which the delay doubles; 0: it does not
    progress_file: str | None = None  # --progress-file: a file or directory that changes when the program gets ahead
    max_no_progress: int = (
        3  # --max-no-progress: attempts in a row that do not change it, after which there is no other
    )
    device_wait: float = 60.0  # --device-wait: seconds for devices that other processes hold, before another attempt
    state_on_timeout: bool = False  # --report-state-on-timeout
    stack_traces: bool = False  # --get-stack-traces
    hang: HangPolicy = HangPolicy()
    stacks_on: tuple[str, ...] = ("hang",)  # --stacks-on: when stacks are looked at: "timeout", "failure", "hang"
    report_pid: str | None = None  # "-" stdout, "+" stderr, or a file
    report_uri: str | None = None  # the same
    index_argv: bool = False  # --index-argv-by-rank: argv[0] of rank 3 ends in -3
    report_bindings: bool = False
    display_map: str = ""  # "map", "table", "devel", "diffable", "ranks"
    display_allocation: bool = False
    display_topology: bool = False
    spawn: str = "auto"  # --spawn: may ranks start more of them by MPI_Comm_spawn: auto, yes, no
    do_not_launch: bool = False
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"  # --color: auto, yes, no
    cluster: ServicePolicy = ServicePolicy()
    devices: DevicePolicy = DevicePolicy()
    monitor: MonitorPolicy = MonitorPolicy()
    horovod: str = ""  # --horovod: "gloo": a key store is served, for builds that have no MPI
    env_for: tuple[str, ...] = ()  # --env-for: words of `frameworks.on_request.ON_REQUEST`
    check: str = ""  # --check: "launch", "hosts" (no program was named); "": the ranks are started
    json: bool = False  # --json: what --check has found, as JSON
    health_check: tuple[str, ...] = ()  # --health-check: a command for each host, split into words
    health_timeout: float = 60.0  # --health-check-timeout
    detach: bool = False  # the command returns when the ranks run, and the launcher stays (cli/jobs)
    resource_manager: str = ""  # --resource-manager: a word of `launcher.launch.MANAGERS`, "none"; "": which is there
    backend: str = ""  # --backend: who starts the ranks; "openmpi", "openmpi:PLACE"; "": we do
    scrub: tuple[str, ...] = ()  # variables, and NAME* patterns, that ranks do not inherit from an agent of a grant
    shared: tuple[str, ...] = ()  # variables of a grant: ranks on other hosts get the launcher's values
    #: variables of each rank: names, and patterns with %r its rank, %l local rank, %t restarts before this attempt, %%;
    #: or a value for each local rank
    rank_variables: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    fill: bool = False  # --fill: {rank} and other names in arguments are replaced by their values
    ready_timeout: float = READY_SECONDS  # --ready-timeout
    local_rank_word: str = ""  # in arguments it stands for the local rank; "": no word does
    failure_code: int = 0  # the exit code whatever fails; 0: that of the first failure
    notes: tuple[str, ...] = ()  # what was said and has no effect, a sentence each; the command prints them

    @property
    def names_hosts(self) -> bool:
        """Whether -H, a hostfile or a rankfile says which hosts are used."""
        named = any(app.hosts or app.sequence or app.hostfile is not None for app in self.apps)
        return named or self.default_hostfile not in (None, NO_HOSTFILE) or self.policy.rankfile is not None


class Caller(NamedTuple):
    """The environment, directory and descriptors of the process that launches, or those that an API call gives."""

    environ: Mapping[str, str]
    cwd: str
    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    signals: bool = True  # handle SIGINT and its like; possible in the main thread only
    observers: tuple[Callable[[Any], None], ...] = ()  # see `launcher/observers.py`
    on_loop: Callable[[Any], None] | None = None  # called with the loop of the launch, before anything else
    on_context: Callable[[Any], None] | None = None  # called with the `LaunchContext`, before a host is connected
    command: Callable[[], list[str]] = list  # the words of the command line, without values of variables
