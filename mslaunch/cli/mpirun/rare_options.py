"""The other options of the mpirun dialect: placement, binding, files, what 5.0 added, and what is refused.

Imported when a command line names one of them, or for help.  The help of a refused row says why, and after a semicolon
what to use instead.  Rows that are accepted without effect ask for what always holds here; their help says so.
"""

from __future__ import annotations

from mslaunch.cli.mpirun.common_options import BIND, END, EVERYDAY, HOSTS, IO, LINK, NOT_HERE, PLACE, RUN, TELL
from mslaunch.cli.mpirun.hang_options import HANG_OPTIONS
from mslaunch.cli.mpirun.mindspore_options import CLUSTER, MINDSPORE_OPTIONS
from mslaunch.cli.mpirun.monitoring_options import MONITOR, MONITORING_OPTIONS
from mslaunch.cli.mpirun.restart_options import RESTART_OPTIONS
from mslaunch.cli.parser import openmpi5_readers, placement_readers, readers
from mslaunch.cli.parser.check_options import CHECK_OPTIONS
from mslaunch.cli.parser.options import DONE, PASSED, REFUSED, Option, read_words
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: the order in which help shows them
GROUPS = (RUN, HOSTS, PLACE, BIND, IO, END, MONITOR, CLUSTER, LINK, TELL, NOT_HERE)
#: the everyday options, as `DialectHelp.everyday` has them
SCREEN = (
    ("n", ""),
    ("H", "hosts, NAME[:SLOTS] with commas between"),
    ("hostfile", ""),
    ("x", "set a variable for the ranks, or forward it"),
    ("map-by", "where: slot, node, core, numa, ppr:N:node"),
    ("bind-to", "none, core, socket, numa: the cpus they get"),
    ("output-filename", "a directory with the output of each rank"),
    ("tag-output", "begin each line with its rank"),
    ("timeout", ""),
    ("restart", "what starts again when a rank fails"),
    ("detach", "return once all ranks run; see --help jobs"),
    ("do-not-launch", "start nothing; with --display-map: show the plan"),
)
#: names that are refused, and why; what to use instead
_REFUSED: tuple[tuple[str, str], ...] = (
    ("dvm hnp dvm-uri max-vm-size terminate ompi-server",
     "there are no daemons that outlive a job; leave it out, each mslaunch works by itself"),
    ("daemonize set-sid system-server keepalive singleton no-ready-msg test-suicide add-host add-hostfile",
     "it is for PRRTE's daemons, and there are none; leave it out"),
    ("debug debugger tv stop-on-exec stop-in-init stop-in-app",
     "no debugger is attached to ranks; start it instead of the program: mslaunch … gdb --args PROGRAM"),
    ("output-proctable", "no debugger is attached to ranks; use --display-map for the ranks of each host"),
    ("launch-agent",
     "hosts need no installed agent; use --agent-python for the interpreter there, --rsh-agent for the connection"),
    ("cf cartofile", "such files have not been read since Open MPI 1.7; leave it out"),
    ("report-events", "no events are sent to tools; leave it out, --verbose reports what happens"),
    ("debug-daemons-file", "agents write no files; use --verbose and redirect stderr: 2> FILE"),
    ("tmpdir", "ranks get no session directory unless they ask for one; give them -x TMPDIR=DIR"),
    ("unset-env", "-x cannot remove a variable; write env -u VAR before the program"),
    ("prepend-env append-env", "-x sets a variable as a whole; give -x VAR=NEW:$VAR"),
    ("pmix-prefix app-pmix-prefix",
     "the PMIx library is found beside the MPI library of the program; use --mpi pmix:PATH for another"),
    ("gpu-support", "4.1 has no parameter for it; --devices-per-rank N gives each rank accelerators"),
    ("pset", "named sets of processes need a PMIx server; leave it out, MPI_COMM_WORLD has all ranks"),
    ("soft arch file", "mpirun accepts and ignores it; leave it out, and choose hosts with -H or --hostfile"),
    ("bysocket", "it was removed after Open MPI 1.6; use --map-by socket"),
    ("bind-to-hwthread", "it was removed after Open MPI 1.6; use --bind-to hwthread"),
    ("cpu-bind", "it is an option of PALS; use --bind-to core, or --map-by slot:PE=N for N cores each"),
    ("depth", "it is an option of PALS; use --map-by slot:PE=N for N cores each, and -x OMP_NUM_THREADS=N"),
    ("r rsh", "it is an option of Intel's mpirun; use --rsh-agent CMD"),
    ("gtool gtoolfile", "it is an option of Intel's mpirun, and no tool is put before the program; write it there: "
     "mslaunch -n 1 TOOL PROGRAM : -n 3 PROGRAM"),
    ("check_mpi check-mpi trace", "it is an option of Intel's mpirun; use -x LD_PRELOAD=libVTmc.so, or libVT.so for a "
     "trace"),
    ("loadbalance", "it was removed after Open MPI 1.6; use --map-by node --rank-by slot, so that each host gets as "
     "many"),
    ("aff", "it is an option of IBM's mpirun; use --bind-to core, or --bind-to none for off"),
    ("gpu", "it is an option of IBM's mpirun; leave it out: the MPI library of the ranks decides what it does"),
    ("pmi", "it is an option of srun; use --mpi pmi1, pmi2 or pmix, or leave it out, which finds the right one"),
    ("stdout-proc", "it has another name here; use --show-ranks RANKS"),
    ("ckpoint ckpointlib ckpoint-interval ckpoint-prefix ckpoint-num",
     "no checkpoints of processes are made; let the program write its own"),
    ("ppn perhost", "it is an option of mpiexec.hydra; use -N N, or begin with --dialect hydra"),
    ("f hosts", "it is an option of mpiexec.hydra; use --hostfile FILE or -H LIST, or begin with --dialect hydra"),
    ("genv env envlist genvlist", "it is an option of mpiexec.hydra; use -x VAR=VALUE, or begin with --dialect hydra"),
    ("genvall envall", "it is an option of mpiexec.hydra; use -x '*', or begin with --dialect hydra"),
    ("l prepend-rank", "it is an option of mpiexec.hydra; use --tag-output, or begin with --dialect hydra"),
    ("mapby rankby bindto", "it is an internal name of Open MPI 5; write --map-by, --rank-by or --bind-to"),
    ("parseable parsable", "it has no meaning by itself; use --display map:parseable"),
)  # fmt: skip


def _passed(*pairs: tuple[str, str]) -> readers.Reader:
    return lambda: [("mca+", pairs)]


def _passed_as(key: str) -> readers.Reader:
    return lambda word: [("mca+", ((key, readers.text(word)),))]


def _tolerant(word: str) -> list[tuple[str, object]]:
    """--with-ft: the library's fault tolerance, which needs ranks that survive each other."""
    if word.lower() in ("mpi", "ulfm", "yes", "true", "1"):
        return [("mca+", (("mpi_ft_enable", "1"),)), ("recovery", True)]
    if word.lower() in ("no", "none", "false", "0"):
        return []
    raise readers.Expected("mpi, ulfm or no")


def _mpi(word: str) -> str:
    """--mpi: a protocol; pmix may have the path of its library."""
    kind, colon, path = word.partition(":")
    if colon and kind.lower() == "pmix":
        return "pmix:" + readers.text(path)
    try:
        return str(readers.choice("auto", "pmi1", "pmi2", "pmix", "none")(word))
    except readers.Expected:
        raise readers.Expected("auto, pmi1, pmi2, pmix, pmix:PATH or none") from None


def _backend(word: str) -> str:
    from mslaunch.backends.backend_table import BACKENDS

    name, colon, place = word.partition(":")
    if name.lower() not in BACKENDS or (colon and not place):
        known = " or ".join(f"{name} or {name}:PLACE" for name in BACKENDS)
        raise readers.Expected(known, "leave it out, and mslaunch starts the ranks itself")
    return name.lower() + colon + place


def _prefixed(prefix: str) -> readers.Reader:
    """The reader of a parameter of 5.0's runtime or of PMIx, which becomes a variable of the ranks."""

    def read(key: str, value: str) -> list[tuple[str, object]]:
        name, value = readers.parameter(key, value)
        return [("app.env+", ((prefix + name, value),))]

    return read


def _prte(key: str, value: str) -> list[tuple[str, object]]:
    """--prtemca: parameters that steer the launch are obeyed, others are passed to the ranks."""
    from mslaunch.cli.mpirun.mca_parameters import PARAMETERS

    name, value = readers.parameter(key, value)
    for row in PARAMETERS:
        if row.name == name:
            return read_words(f"--prtemca {name}", row.field, row.read, value)
    return [("app.env+", (("PRTE_MCA_" + name, value),))]


def _row(names: str, metavar: str, help: str, group: str, read: readers.Reader,
         field: str = "", default: str = "", status: str = DONE) -> Option:  # fmt: skip
    return Option(tuple(names.split()), metavar, help, group, field, read, default, status)


_RUN = (
    _row("app", "FILE", "programs from a file, one a line with its options, without quotes; job-wide options and -x of "
         "the command line hold for all of them", RUN, readers.text, "own.appfile"),
    _row("tune am amca", "FILES", "read -mca and -x from files, with commas between; the command line is stronger",
         RUN, readers.files, "own.tune+"),
    _row("path", "DIRS", "directories to search for the program before PATH, with colons between", RUN, readers.text,
         "app.path"),
    _row("prefix", "DIR", "DIR/bin and DIR/lib go in front of PATH and LD_LIBRARY_PATH of the ranks", RUN,
         readers.text, "app.prefix"),
    _row("noprefix no-app-prefix", "", "accepted: a prefix is only passed on with --prefix", RUN,
         readers.nothing),
    _row("s preload-binary", "", "send the executable to the hosts", RUN, readers.on, "app.preload_binary"),
    _row("preload-files", "FILES", "send these files to the hosts, with commas between", RUN, readers.files,
         "app.preload_files+"),
    _row("set-cwd-to-session-dir", "", "start each rank in a directory of its own that is removed at the end", RUN,
         readers.on, "app.session_dir"),
    _row("index-argv-by-rank", "", "argv[0] of rank 3 ends in -3", RUN, readers.on, "index_argv"),
    _row("fill", "", "put what each rank is in its arguments, for {rank}, {size}, {local_rank}, {local_size}, "
         "{node_rank}, {nnodes}, {master_addr}, {master_port} and {hosts}, with commas between; {{rank}} stays {rank}",
         RUN, readers.on, "fill"),
    _row("ready", "PORT", "programs behind the next ':' start once the first rank of this one listens at PORT on its "
         "host; {master_port}: at MASTER_PORT", RUN, readers.ready_port, "app.ready"),
    _row("ready-timeout", "SECONDS", "how long a rank may take until it listens at the PORT of --ready; after that the "
         "job is ended", RUN, readers.wait, "ready_timeout", "300"),
    _row("fwd-environment", "", "give the ranks every variable that is set here, as -x '*'", RUN,
         readers.exactly("app.env+", (("*", None),))),
    _row("personality", "LIST", "accepted: variables of all known libraries are set", RUN, readers.ignored),
    _row("prtemca", "KEY VALUE", "a parameter of 5.0's runtime: those listed below steer mslaunch, others become "
         "PRTE_MCA_KEY of the ranks", RUN, _prte, status=PASSED),
    _row("pmixmca gpmixmca", "KEY VALUE", "pass a parameter on as PMIX_MCA_KEY", RUN, _prefixed("PMIX_MCA_"),
         status=PASSED),
    _row("mpi", "auto|pmi1|pmi2|pmix[:PATH]|none", "protocol by which ranks of an MPI program find each other; auto "
         "detects it by the MPI library; PATH is that of libpmix", RUN, _mpi, "app.mpi", "auto"),
    _row("spawn", "auto|yes|no", "whether ranks may start more ranks by MPI_Comm_spawn; auto: those of a job that is "
         "known to be one of MPI", RUN, readers.choice("auto", "yes", "no"), "spawn", "auto"),
    _row("horovod", "gloo", "serve the key store by which ranks of a Horovod without MPI find each other, on each host "
         "to its own ranks (docs/frameworks.md)", RUN, readers.choice("gloo"), "horovod"),
    _row("env-for", "LIST", "also give ranks the variables of these frameworks, with commas between: tf (TF_CONFIG), "
         "paddle, oneccl (docs/frameworks.md)", RUN, readers.words_of("tf", "paddle", "oneccl"), "env_for"),
    _row("backend", "openmpi[:PLACE]", "let an installed Open MPI, 4.1 or newer, start the ranks: the mpirun on PATH, "
         "or that at PLACE, a directory or the file itself (docs/backend.md)", RUN, _backend, "backend"),
    _row("stream-buffering", "0|1|2", "how the library of the ranks buffers stdout: not, by line, fully (5.0)", RUN,
         lambda word: _passed_as("ompi_stream_buffering")(readers.choice("0", "1", "2")(word)), status=PASSED),
    _row("initial-errhandler", "NAME", "as -mca mpi_initial_errhandler NAME (5.0)", RUN,
         _passed_as("mpi_initial_errhandler"), status=PASSED),
    _row("memory-alloc-kinds", "LIST", "as -mca mpi_memory_alloc_kinds LIST (5.0)", RUN,
         _passed_as("mpi_memory_alloc_kinds"), status=PASSED),
    _row("display-comm", "", "as -mca ompi_display_comm mpi_init (5.0)", RUN,
         _passed(("ompi_display_comm", "mpi_init")), status=PASSED),
    _row("display-comm-finalize", "", "as -mca ompi_display_comm mpi_finalize (5.0)", RUN,
         _passed(("ompi_display_comm", "mpi_finalize")), status=PASSED),
)  # fmt: skip

_PLACE = (
    _row("default-hostfile", "FILE", "hostfile to use where neither --hostfile nor -H is given", HOSTS, readers.text,
         "default_hostfile"),
    _row("novm", "", "accepted: mslaunch only connects to hosts that get a rank", HOSTS, readers.nothing),
    _row("do-not-resolve", "", "accepted: only the connection looks up names of hosts", HOSTS,
         readers.nothing),
    _row("hetero-nodes uniform-nodes", "", "accepted: each host reports its own topology", HOSTS, readers.nothing),
    _row("map-by", "POLICY[:MODIFIERS]", "slot: fill one node after the other; node: one rank a node in turn; "
         "hwthread, core, l1cache, l2cache, l3cache, socket (package), numa, board: one rank on each in turn; "
         "ppr:N:OBJECT: N ranks on each object; seq: one rank a line of the hostfile; "
         "rankfile:file=FILE: as --rankfile. Modifiers, with a colon or comma between: PE=N (cpus for each rank), SPAN "
         "(all nodes as one), OVERSUBSCRIBE, NOOVERSUBSCRIBE, NOLOCAL, HWTCPUS, PE-LIST=CPUS", PLACE,
         placement_readers.map_by, default="core for 1 or 2 ranks, else numa"),
    _row("rank-by", "POLICY[:SPAN|:FILL]", "number the ranks in this order: slot, node, hwthread, core, "
         "l1cache, l2cache, l3cache, socket, numa or board; fill, span: of the objects that ranks are mapped by (5.0)",
         PLACE, placement_readers.rank_by, default="as --map-by"),
    _row("N npernode", "N", "ranks on each node; --map-by is stronger", PLACE, placement_readers.ranks_per("node")),
    _row("pernode", "", "as -N 1", PLACE, placement_readers.one_per_node),
    _row("npersocket", "N", "ranks on each socket; --map-by is stronger", PLACE, placement_readers.ranks_per("socket")),
    _row("ppr", "N:OBJECT", "as --map-by ppr:N:OBJECT", PLACE, placement_readers.ppr),
    _row("bynode", "", "as --map-by node --rank-by node", PLACE, placement_readers.map_and_rank("node")),
    _row("byslot", "", "as --map-by slot --rank-by slot", PLACE, placement_readers.map_and_rank("slot")),
    _row("bycore", "", "as --map-by core --rank-by core", PLACE, placement_readers.map_and_rank("core")),
    _row("nooversubscribe", "", "do not allow more ranks than slots", PLACE,
         readers.exactly("policy.oversubscribe", False)),
    _row("nolocal", "", "no ranks on this host", PLACE, readers.on, "policy.nolocal"),
    _row("rf rankfile", "FILE", "which rank gets which host and cpus: rank N=HOST slot=CPUS, one a line", PLACE,
         readers.text, "policy.rankfile"),
    _row("bind-to", "WHAT[:QUALIFIERS]", "none, hwthread, core, l1cache, l2cache, l3cache, socket (package), "
         "numa, board or cpu-list (all of --cpu-list; cpu-list:ordered: one each); qualifiers, with a comma between: "
         "overload-allowed (more ranks than cpus), if-supported (else unbound), report (as --report-bindings)", BIND,
         placement_readers.bind_to,
         default="core for 1 or 2 ranks, else numa; none with more ranks than slots or cpus"),
    _row("bind-to-none", "", "as --bind-to none", BIND, readers.exactly("policy.bind_to", "none")),
    _row("bind-to-core", "", "as --bind-to core", BIND, readers.exactly("policy.bind_to", "core")),
    _row("bind-to-socket", "", "as --bind-to socket", BIND, readers.exactly("policy.bind_to", "socket")),
    _row("cpus-per-proc cpus-per-rank", "N", "cpus for each rank, as the modifier PE=N", BIND, readers.count,
         "policy.pe"),
    _row("cpu-set cpu-list", "LIST", "use only these cpus of each host: 0,2-3, logical numbers as lstopo -l shows "
         "them", BIND, placement_readers.cpu_list, "policy.cpu_set"),
    _row("use-hwthread-cpus", "", "count hardware threads as cpus, not cores", BIND, readers.on,
         "policy.hwthread_cpus"),
    _row("devices-per-rank", "N", "each rank gets N accelerators of its node for itself: its CUDA_VISIBLE_DEVICES, "
         "ASCEND_RT_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or ZE_AFFINITY_MASK names them; refused where a node has "
         "fewer", BIND, readers.count, "devices.each"),
    _row("devices", "LIST", "use only these accelerators of each node: 0,2-3, or names as in CUDA_VISIBLE_DEVICES; "
         "without --devices-per-rank all ranks of a node get them all", BIND, placement_readers.device_names,
         "devices.names"),
    _row("report-bindings", "", "print which cpus each rank is bound to", BIND, readers.on, "report_bindings"),
)  # fmt: skip

_IO = (
    _row("output", "LIST", "5.0's list of output options: tag, tag-detailed, tag-fullname, rank, "
         "timestamp, xml, merge-stderr-to-stdout, dir=DIR, file=FILE (FILE.RANK.out), nocopy; with commas between",
         IO, openmpi5_readers.output),
    _row("output-directory", "DIR", "as --output dir=DIR", IO, lambda word: openmpi5_readers.output("dir=" + word)),
    _row("xml", "", "print the output of the ranks as XML, on stdout", IO, readers.on, "output.xml"),
    _row("xml-file", "FILE", "the same, in a file", IO, readers.text, "output.xml_file"),
    _row("xterm", "RANKS", "show these ranks in xterm windows: 0,2-3, or -1 for all; a final ! holds the windows",
         IO, openmpi5_readers.xterm, "output.xterm"),
    _row("fold", "", "show lines that several ranks print within a tenth of a second once, after the numbers of the "
         "ranks: [0-7] text; files have what each rank has printed (docs/output.md)", IO, readers.on, "output.fold"),
    _row("show-ranks", "RANKS", "only what these ranks print reaches the terminal: 0,2-3; files have all", IO,
         openmpi5_readers.shown_ranks, "output.shown"),
    _row("pty", "auto|yes|no", "whether stdout of the ranks is a terminal, so that programs flush each line", IO,
         readers.choice("auto", "yes", "no"), "output.pty", "auto"),
)  # fmt: skip

_END = (
    _row("grace", "SECONDS", "how long ranks have between SIGTERM and SIGKILL", END, readers.span, "grace", "2"),
    _row("term-to", "rank|group", "who gets SIGTERM when the job is ended: the rank (and the program that a shell "
         "runs), or all of its process group. SIGKILL goes to the group. Default: rank", END,
         readers.choice("rank", "group"), "term_to"),
    _row("warn", "SIGNAL[@SECONDS]", "send the ranks a signal so many seconds before --timeout, 60 without a number: "
         "SIGUSR1@120", END, readers.warning, "warn"),
    _row("report-state-on-timeout", "", "print the state of each rank when --timeout is reached", END, readers.on,
         "state_on_timeout"),
    *HANG_OPTIONS,
    _row("enable-recovery continuous", "", "the other ranks continue when one fails", END, readers.on, "recovery"),
    _row("disable-recovery", "", "a rank that fails ends the job", END,
         lambda: [("recovery", False), ("max_restarts", 0)], default="so"),
    *RESTART_OPTIONS,
    _row("detach", "", "return once all ranks run; mslaunch --status shows their state, --stop JOB ends them", END,
         readers.on, "detach"),
    _row("with-ft", "mpi|ulfm|no", "as -mca mpi_ft_enable 1 --enable-recovery (5.0)", END, _tolerant, status=PASSED),
    _row("report-child-jobs-separately", "", "accepted: there are no child jobs, the exit code is that of this job",
         END, readers.nothing),
    _row("forward-signals", "LIST", "accepted for USR1, USR2, TSTP and CONT, which are always forwarded", END,
         openmpi5_readers.signals),
    _row("runtime-options rtos", "LIST", "5.0's list, NAME[=VALUE] with commas between: error-nonzero-status=0, "
         "donotlaunch, recoverable, continuous, max-restarts=N, timeout=SECONDS or D:H:M:S, report-state-on-timeout, "
         "get-stack-traces, fwd-environment, show-progress", END, openmpi5_readers.runtime_options),
)  # fmt: skip

_LINK = (
    _row("ssh-accept-new", "", "trust the key of an unknown host", LINK, readers.on, "link.accept_new"),
    _row("connect-timeout spawn-timeout", "SECONDS", "how long a host may take to connect", LINK, readers.wait,
         "link.timeout", "15"),
    _row("wait-hosts", "SECONDS", "a host whose name has no address, that refuses the connection or drops it is tried "
         "again for so long, also where the program of --rsh-agent says so. Default: 0, and 300 where an operator of "
         "Kubernetes starts the launcher", LINK, readers.span, "link.wait"),
    _row("agent-python", "PATH", "python on the hosts, 3.8 or newer", LINK, readers.text, "link.python", "python3"),
    _row("resource-manager", "NAME", "the system whose job this launch runs in: slurm, pbs, lsf, gridengine, flux and "
         "others; none: hosts are only those of the command line. Default: found by the environment", HOSTS,
         readers.text, "resource_manager"),
    _row("fanout", "N", "hosts that are connected at the same time", LINK, readers.count, "link.fanout", "32"),
    _row("heartbeat", "SECONDS", "mslaunch and the agents on the hosts send each other a sign of life when they have "
         "sent nothing for so long; at most half of --lease. Default: 5, or a third of a short --lease", LINK,
         readers.wait, "link.heartbeat"),
    _row("lease", "SECONDS", "a host that was not heard for so long counts as lost, and an agent that did not hear "
         "mslaunch ends its ranks; at least 0.5; 0: never", LINK, readers.span, "link.lease", "15"),
    _row("leave-session-attached", "", "accepted: messages of agents are always shown here", LINK, readers.nothing),
    _row("use-regexp enable-instant-on-support fwd-mpirun-port", "", "accepted: it is not needed here", LINK,
         readers.nothing),
)  # fmt: skip

_TELL = (
    _row("display", "LIST", "5.0's list: allocation, map, map-devel, bindings, topo; map:parseable", TELL,
         openmpi5_readers.display),
    _row("display-map", "", "print which rank goes where, in mpirun's layout", TELL,
         readers.exactly("display_map", "map")),
    _row("display-devel-map", "", "the same, with cpus and local ranks", TELL,
         readers.exactly("display_map", "devel")),
    _row("display-table", "", "print which ranks go where as a table of nodes, with ranges of ranks and cpus", TELL,
         readers.exactly("display_map", "table")),
    _row("display-diffable-map", "", "the same, in a form to compare", TELL,
         readers.exactly("display_map", "diffable")),
    _row("display-allocation display-devel-allocation", "", "print the hosts and slots", TELL, readers.on,
         "display_allocation"),
    _row("display-topo", "", "print the cpus of each host and what they share", TELL, readers.on, "display_topology"),
    _row("do-not-launch", "", "a dry run: print where ranks would go, and start nothing", TELL, readers.on,
         "do_not_launch"),
    _row("report-pid", "-|+|FILE", "print the process id of mslaunch on stdout, stderr or into a file", TELL,
         readers.text, "report_pid"),
    _row("report-uri", "-|+|FILE", "the same for a name of this launch, in place of mpirun's URI", TELL,
         readers.text, "report_uri"),
    _row("d debug-devel debug-daemons show-progress", "", "as --verbose", TELL, readers.on, "verbose"),
    _row("color", "auto|yes|no", "whether messages of mslaunch have colours; auto: yes on a terminal unless "
         "NO_COLOR, CLICOLOR=0 or TERM=dumb says no, and yes with CLICOLOR_FORCE or FORCE_COLOR", TELL,
         readers.choice("auto", "yes", "no"), "color", "auto"),
    _row("no-aggregate-help", "", "accepted: each error is printed once", TELL, readers.nothing),
)  # fmt: skip

RARE: tuple[Option, ...] = (
    *_RUN,
    *_PLACE,
    *_IO,
    *_END,
    *MONITORING_OPTIONS,
    *MINDSPORE_OPTIONS,
    *_LINK,
    *_TELL,
    *CHECK_OPTIONS,
    *(Option(tuple(names.split()), "", why, NOT_HERE, status=REFUSED) for names, why in _REFUSED),
)


def rows(names: Sequence[str]) -> tuple[Option, ...]:
    """The rows with these first names, for another dialect, where --display-map prints our own table."""
    return tuple(
        row._replace(names=(*row.names, "display-map")) if row.names[0] == "display-table" else row
        for row in (*RARE, *EVERYDAY)
        if row.names[0] in names
    )
