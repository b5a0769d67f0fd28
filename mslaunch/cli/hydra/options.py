"""The options and variables of the hydra dialect.

Help, docs/dialects.md and the parser read the same rows.  Names are those of mpiexec.hydra 5.0.2, and those of older
versions and of Intel's mpiexec.hydra that scripts still use.  Ranks on this host inherit the whole environment, even
with -genvnone, as they do from hydra.
"""

from __future__ import annotations

from mslaunch.cli.hydra import batch_systems
from mslaunch.cli.hydra import readers as hydra_readers
from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import PASSED, REFUSED, Option, Variable, show_help, show_version
from mslaunch.faststd import NamedTuple

RUN = "What to run"
ENV = "Environment"
HOSTS = "Hosts"
PLACE = "Placement and binding"
IO = "Input and output"
END = "Failure"
LINK = "Reaching the hosts"
TELL = "Information"
LATER = "Refused"

#: the everyday options, as `DialectHelp.everyday` has them
SCREEN = tuple(
    (name, "")
    for name in ("n", "hosts", "f", "ppn", "wdir", "genv", "genvlist", "bind-to", "l", "outfile-pattern", "launcher",
                 "print-rank-map")
)  # fmt: skip
#: options of mslaunch itself, by their first names in the table of mpirun
EXTRAS = (
    "pty", "merge-stderr-to-stdout", "grace", "term-to", "timeout", "warn", "rsh-agent", "ssh-accept-new",
    "resource-manager", "wait-hosts", "connect-timeout", "agent-python", "fanout", "heartbeat", "lease", "spawn",
    "devices-per-rank", "devices", "horovod", "env-for", "fill", "ready", "ready-timeout", "display-table",
    "display-allocation", "do-not-launch", "hang-timeout", "on-hang", "stacks-on", "record", "events", "on-event",
    "check", "json", "health-check", "health-check-timeout",
    "metrics", "progress", "fold", "show-ranks", "color", "q",
)  # fmt: skip
_demux = readers.ignored_choice("poll", "select")
USAGE = "Usage: mslaunch --dialect hydra [options] program [arguments]"
_NOTHING = "accepted, without effect: "


#: variables that are read, weakest first
VARIABLES: tuple[Variable, ...] = (
    Variable("HYDRA_HOST_FILE", "own.hosts", hydra_readers.hosts_of("HYDRA_HOST_FILE"), "as -f, without -f and -hosts"),
    Variable(
        "I_MPI_HYDRA_HOST_FILE",
        "own.hosts",
        hydra_readers.hosts_of("I_MPI_HYDRA_HOST_FILE"),
        "as -f, without -f and -hosts (Intel)",
    ),
    Variable("I_MPI_PERHOST", "own.ppn", batch_systems.ranks_per_host, "as -ppn (Intel)"),
    Variable("HYDRA_PPN", "own.ppn", readers.count, "as -ppn (Intel)"),
    Variable("HYDRA_BOOTSTRAP", "own.launcher", batch_systems.launcher, "as -launcher"),
    Variable("HYDRA_LAUNCHER", "own.launcher", batch_systems.launcher, "as -launcher"),
    Variable("I_MPI_HYDRA_BOOTSTRAP", "own.launcher", batch_systems.launcher, "as -launcher (Intel)"),
    Variable("HYDRA_BOOTSTRAP_EXEC", "link.agent", readers.texts, "as -launcher-exec"),
    Variable("HYDRA_LAUNCHER_EXEC", "link.agent", readers.texts, "as -launcher-exec"),
    Variable("I_MPI_HYDRA_BOOTSTRAP_EXEC", "link.agent", readers.texts, "as -launcher-exec (Intel)"),
    Variable("HYDRA_LAUNCHER_EXTRA_ARGS", "link.agent_args", readers.shell_words, "more arguments for that command"),
    Variable("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "link.agent_args", readers.shell_words, "the same (Intel)"),
    Variable("HYDRA_RMK", "own.manager", batch_systems.manager, "as -rmk"),
    Variable("I_MPI_HYDRA_RMK", "own.manager", batch_systems.manager, "as -rmk (Intel)"),
    Variable("HYDRA_BINDING", "", hydra_readers.bind_to, "as -bind-to"),
    Variable("HYDRA_MAPPING", "own.map_by", readers.text, "as -map-by"),
    Variable("HYDRA_ENV", "own.forward", hydra_readers.forwarded, "all: as -genvall; any other word: as -genvnone"),
    Variable("HYDRA_IFACE", "", hydra_readers.interface, "as -iface"),
    Variable("I_MPI_HYDRA_IFACE", "", hydra_readers.interface, "as -iface (Intel)"),
    Variable("HYDRA_DEMUX", "", _demux, "as -demux"),
    Variable("HYDRA_DEBUG", "verbose", readers.yes_no, "1: as -verbose"),
    Variable("I_MPI_HYDRA_DEBUG", "verbose", readers.yes_no, "1: as -verbose (Intel)"),
    Variable("MSLAUNCH_GRACE", "grace", readers.span, "as --grace"),
    Variable("MPIEXEC_TIMEOUT", "", readers.limit_by("MPIEXEC_TIMEOUT"), "end the job after so many seconds"),
    Variable("I_MPI_JOB_TIMEOUT", "", readers.limit_by("I_MPI_JOB_TIMEOUT"), "the same (Intel)"),
)
#: other variables, and what becomes of them
OTHERS: tuple[tuple[str, str], ...] = (
    ("HYDRA_CONFIG_FILE", "a file of options, blanks and line ends between them; the command line wins"),
    ("MPIEXEC_PORT_RANGE, MPIR_CVAR_CH3_PORT_RANGE", "passed on to the ranks; mslaunch itself listens on no port"),
    ("HYDRA_MEMBIND, HYDRA_TOPOLIB, HYDRA_TOPO_DEBUG", "not read: memory is not bound, and no library is needed"),
    ("HYDRA_HOSTNAME_PROPAGATION, HYDRA_USE_LOCALHOST", "not read: addresses are found by trying them"),
    ("HYDRA_LAUNCHER_SSH_LIMIT, HYDRA_LAUNCHER_SSH_LIMIT_TIME, HYDRA_PROXY_RETRY_COUNT", "not read: see --fanout"),
)

EXAMPLES = (
    ("4 ranks on this host", "mpiexec.hydra -n 4 ./solve"),
    ("two ranks on each host of a file, each line with its rank", "mpiexec.hydra -f hosts -ppn 2 -n 8 -l ./solve"),
    ("two programs", "mpiexec.hydra -hosts node01,node02 -n 1 ./master : -n 3 ./worker"),
)

#: (names, value, why; what to use instead)
_REFUSED: tuple[tuple[str, str, str], ...] = (
    ("membind", "POLICY", "it binds no memory; put numactl --membind before the program"),
    ("usize", "N", "ranks cannot start other ranks here; leave it out"),
    ("gpus-per-proc g gpu-subdevs-per-proc", "N",
     "it gives out no GPUs; set CUDA_VISIBLE_DEVICES from OMPI_COMM_WORLD_LOCAL_RANK"),
    ("output-from", "RANK", "all ranks are shown; use -outfile-pattern for a file of each rank, or -l and grep"),
    ("enable-x", "", "it forwards no X display; -launcher-exec may name a script that runs ssh -X"),
    ("nameserver", "HOST:PORT", "it has no name server (MPI_Publish_name); exchange names through a file"),
    ("pmi-port", "", "it has no PMI server on a port; leave it out"),
    ("pmi_args", "ARGS", "programs that are started without a launcher need none here; leave it out"),
    ("hybrid-hosts", "", "hosts need nothing installed; give -wdir DIR where directories differ"),
    ("print-all-exitcodes", "", "the first rank that failed is named at the end with its code; leave it out"),
    ("profile", "", "it counts no PMI calls; leave it out"),
    ("memory-alloc-kinds", "KINDS", "it passes no such request on; use the program's own MPI_Session or MPI_Info"),
    ("ckpoint ckpointlib ckpoint-interval ckpoint-prefix ckpoint-num", "VALUE",
     "it makes no checkpoints of processes; let the program write its own"),
    ("cpu-bind", "LIST", "it is an option of PALS, and Intel's -cpu-bind too; use -bind-to core, or "
     "-bind-to core:N for N cores each"),
    ("depth d", "N", "it is an option of PALS; use -bind-to core:N for N cores each, and -genv OMP_NUM_THREADS N"),
    ("r rsh", "COMMAND", "it is an old name; use -launcher-exec COMMAND, or -launcher rsh"),
    ("gtool gtoolfile", "'TOOL:RANKS'", "it puts no tool before the program; write it there: mslaunch … -n 1 TOOL "
     "PROGRAM : -n 3 PROGRAM"),
    ("check_mpi check-mpi trace trace-imbalance trace_imbalance", "[LIBRARY]",
     "it loads no library of Intel's Trace Analyzer; use -genv LD_PRELOAD libVTmc.so, or libVT.so for a trace"),
    ("mem-bind", "LIST", "it is an option of PALS, and no memory is bound; put numactl --membind before the program"),
    ("gpu-bind rlimit", "VALUE", "it is an option of PALS; write a script that sets it for the rank, as its program"),
    ("aps mps", "", "it starts no profiler; put one before the program: mslaunch … aps PROGRAM"),
    ("tune", "FILE", "it is for Intel MPI's library; use -genv I_MPI_TUNING_BIN FILE"),
    ("prot", "", "it is for Intel MPI's library; use -genv I_MPI_DEBUG 5"),
    ("loadbalance", "", "it was removed after Open MPI 1.6; use -ppn N, so that each host gets as many"),
    ("gpu", "", "it is an option of IBM's mpirun; leave it out: the MPI library of the ranks decides what it does"),
    ("pmi", "NAME", "it is an option of srun; use --mpi pmi1, pmi2 or pmix in the dialect of mpirun, or leave it out"),
    ("stdout-proc", "RANK", "all ranks are shown; use -outfile-pattern for a file of each rank, or -l and grep"),
    ("tv tva gdb gdba ddd", "", "it starts no debugger; put one before the program: mslaunch … gdb --args PROGRAM"),
    ("x", "VAR[=VALUE]", "it is an option of Open MPI's mpirun; use -genv VAR VALUE, or begin with --dialect mpirun"),
    ("mca", "KEY VALUE",
     "it is an option of Open MPI's mpirun; use -genv OMPI_MCA_KEY VALUE, or begin with --dialect mpirun"),
    ("oversubscribe allow-run-as-root", "",
     "it is an option of Open MPI's mpirun; leave it out: neither is ever refused here"),
    ("tag-output", "", "it is an option of Open MPI's mpirun; use -l, or begin with --dialect mpirun"),
    ("soft", "TRIPLETS", "a job has one number of ranks; use -n"),
    ("arch", "ARCH", "hosts are chosen by name; use -hosts or -f"),
    ("file", "FILE", "no MPI defines its format; use -configfile"),
)  # fmt: skip


class HydraOptions(NamedTuple):
    """The options of hydra itself; None: not given."""

    hosts: tuple[str, str] | None = None  # the option, and its list or file
    ppn: int | None = None
    order: str = ""
    skip: bool = False  # -skip-launch-node
    rankmap: tuple[int, ...] | None = None  # of each rank, the number of its host
    manager: str = ""  # -rmk, as `batch_systems.manager` has it
    forward: tuple[str, ...] = ("*",)  # as `AppContext.forward`
    hidden: tuple[str, ...] | None = None  # -genvexcl
    env: tuple[tuple[str, str], ...] = ()
    path: str | None = None
    wdir: str | None = None
    launcher: str = ""  # -launcher, as `batch_systems.launcher` has it
    map_by: str = ""
    bound: str = ""  # the object of -bind-to


TABLE: tuple[Option, ...] = (
    Option(("n", "np", "c"), "N", "number of ranks", RUN, "app.np", readers.ranks,
           "one for each slot of the hosts, or -ppn, or 1", once=True),
    Option(("wdir", "dir"), "DIR", "working directory of this program", RUN, "app.wdir", readers.text,
           "the current one"),
    Option(("gwdir",), "DIR", "the same for all programs", RUN, "own.wdir", readers.text),
    Option(("path",), "DIRS", "where this program is looked for before PATH", RUN, "app.path", readers.text),
    Option(("gpath",), "DIRS", "the same for all programs", RUN, "own.path", readers.text),
    Option(("configfile",), "FILE",
           "the programs are in this file, one a line with its options; it ends the command line", RUN, "",
           readers.ignored),
    Option(("genv",), "NAME VALUE", "a variable for all ranks; NAME=VALUE as one word is the same", ENV, "own.env+",
           hydra_readers.pair),
    Option(("env",), "NAME VALUE", "a variable for the ranks of this program", ENV, "app.env+", hydra_readers.pair),
    Option(("genvall",), "", "ranks on other hosts get all variables that are set here", ENV, "",
           readers.exactly("own.forward", ("*",)), "yes"),
    Option(("genvnone",), "", "ranks on other hosts get none of them", ENV, "", readers.exactly("own.forward", ())),
    Option(("genvlist",), "NAMES", "ranks on other hosts get these, with commas between", ENV, "own.forward",
           hydra_readers.names),
    Option(("genvexcl",), "NAMES", "ranks on other hosts get all but these (Intel)", ENV, "own.hidden",
           hydra_readers.names),
    Option(("envall",), "", "as -genvall, for this program", ENV, "", readers.exactly("app.forward", ("*",))),
    Option(("envnone",), "", "as -genvnone, for this program", ENV, "", readers.exactly("app.forward", ())),
    Option(("envlist",), "NAMES", "as -genvlist, for this program", ENV, "app.forward", hydra_readers.names),
    Option(("hosts", "host", "hostlist", "hosts-group"), "LIST",
           "hosts, NAME[:RANKS] with commas between; for all programs, or where several have it for its own", HOSTS,
           "own.hosts", hydra_readers.hosts_of("-hosts"), "those of the batch system, or this host"),
    Option(("f", "hostfile", "machinefile", "machine", "machines", "machinelist"), "FILE",
           "file of hosts, a line is NAME[:RANKS] [user=USER]", HOSTS, "own.hosts", hydra_readers.hosts_of("-f"),
           "HYDRA_HOST_FILE"),
    Option(("skip-launch-node", "nolocal"), "", "use all named hosts but this one", HOSTS, "own.skip", readers.on),
    Option(("order-nodes",), "ascending|descending", "use the hosts in the order of their numbers of ranks", HOSTS,
           "own.order", readers.choice("ascending", "descending")),
    Option(("localhost",), "NAME", _NOTHING + "hosts do not get the name of this one", HOSTS, "",
           readers.ignored),
    Option(("disable-hostname-propagation", "enable-hostname-propagation"), "",
           _NOTHING + "addresses are found by trying them", HOSTS, "", readers.nothing),
    Option(("rmk",), "NAME", "the system whose hosts are used where none are named: slurm, pbs, lsf, sge, ll or "
           "cobalt; user: none; as --resource-manager", HOSTS, "own.manager", batch_systems.manager,
           "found by the environment"),
    Option(("ppn", "perhost", "grr"), "N", "ranks of a host before the next host gets any", PLACE, "own.ppn",
           readers.count, "the counts of the list of hosts, or 1"),
    Option(("rr",), "", "as -ppn 1 (Intel)", PLACE, "", readers.exactly("own.ppn", 1)),
    Option(("rankmap",), "LIST", "host of each rank by number: 0,0,1,1, or (first,hosts,ranks)", PLACE, "own.rankmap",
           hydra_readers.rankmap),
    Option(("bind-to", "binding"), "OBJECT[:N]",
           "bind each rank of a host to the next of these: numa, socket, l1cache, l2cache, l3cache, core or hwthread; "
           "none, machine: do not bind", PLACE, "", hydra_readers.bind_to, "none"),
    Option(("map-by",), "OBJECT", "the same object as for -bind-to; no effect without it", PLACE, "own.map_by",
           readers.text),
    Option(("topolib",), "hwloc", _NOTHING + "no library is needed", PLACE, "", readers.ignored),
    Option(("l", "prepend-rank"), "", "begin each line with [RANK]", IO, "", readers.exactly("output.tag", "rank")),
    Option(("prepend-pattern",), "PATTERN", "begin each line with this: %r rank, %h host, %p its number, %g 0", IO,
           "output.prepend", readers.text),
    Option(("outfile-pattern", "outfile"), "PATTERN", "standard output goes to this file; the same letters", IO,
           "output.outfile", readers.text),
    Option(("errfile-pattern", "errfile"), "PATTERN", "standard error goes to this file", IO, "output.errfile",
           readers.text),
    Option(("s", "stdin"), "RANK|all|none", "which rank gets standard input (Intel)", IO, "stdin", readers.stdin, "0"),
    Option(("demux",), "poll|select", _NOTHING + "all ways to wait for output look the same", IO, "", _demux),
    Option(("disable-auto-cleanup",), "", "the other ranks go on when one fails", END, "recovery", readers.on),
    Option(("enable-auto-cleanup",), "", "a rank that fails ends the job", END, "",
           readers.exactly("recovery", False), "yes"),
    Option(("launcher", "bootstrap"), "NAME",
           "how hosts are reached: ssh, rsh; slurm, pbs, lsf, sge: by the means of that system, inside of its jobs; "
           "fork: all ranks run here", LINK, "own.launcher", batch_systems.launcher,
           "the means of the batch system, or built-in ssh"),
    Option(("launcher-exec", "bootstrap-exec"), "PROGRAM", "the program that reaches a host: PROGRAM HOST COMMAND…",
           LINK, "link.agent", readers.texts),
    Option(("bootstrap-exec-args",), "ARGS", "more arguments for that command, in one word (Intel)", LINK,
           "link.agent_args", readers.shell_words),
    Option(("line-buffer", "no-vni", "no-transfer"), "",
           _NOTHING + "PALS has them; -l writes whole lines, and the program is not sent", LINK, "", readers.nothing),
    Option(("disable-x",), "", _NOTHING + "no X display is forwarded", LINK, "", readers.nothing),
    Option(("iface",), "NAME", "the network that the ranks' MPI library is to use, by its own variable", LINK, "",
           hydra_readers.interface, status=PASSED),
    Option(("print-rank-map",), "", "print the ranks of each host, (HOST:0,1,2) (Intel)", TELL, "",
           readers.exactly("display_map", "ranks")),
    Option(("v", "verbose", "debug"), "", "report what is being done", TELL, "verbose", readers.on),
    Option(("info", "version"), "", "print the version and exit", TELL, "", show_version),
    Option(("h", "help"), "[TOPIC]", "print the everyday options; what belongs to a topic; one option; or all", TELL,
           "", show_help),
    *(Option(tuple(names.split()), value, why, LATER, status=REFUSED) for names, value, why in _REFUSED),
)  # fmt: skip
