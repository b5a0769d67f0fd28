"""The mpirun dialect: Open MPI 4.1's command line, and a few options of our own.

The table below is the whole of it; help, docs/options.md and the parser read the same rows.  Every option that
mpirun 4.1 knows is here: those that mslaunch does not have are refused, each with what to use instead, and none is
swallowed.  Spellings and edges are those observed of 4.1.4 (mpirun(1), tests/compat) unless a help text says
otherwise.  The one surprising thing: `-mca` values that steer the launch itself (plm_rsh_agent, …) are read like
options, so OMPI_MCA_plm_rsh_agent in the environment means the same; all others are passed on to the ranks.
"""

from __future__ import annotations

import os

from mslaunch.cli import options, readers
from mslaunch.cli.options import PASSED, REFUSED, Option, Show, Variable
from mslaunch.errors import UsageError
from mslaunch.lean import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.cli.options import Section, Setting
    from mslaunch.model import Request


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Request:
    """The request that a command line (without the program name) and the environment make.

    The command line's options win over its `-mca` parameters, and these over the environment.  Raises `UsageError`,
    or `Show` for --help and --version.
    """
    found = options.sections(options.by_name(TABLE), argv)
    given = _parameters(found)
    weaker = _from_environ(environ)
    for row in PARAMETERS:
        if row.name in given:
            weaker += options.settings_of(f"-mca {row.name}", row.field, row.read, given.pop(row.name))
    weaker.append(("mca", tuple(given.items())))
    return options.assemble(weaker, [part._replace(settings=_without_parameters(part)) for part in found])


def _from_environ(environ: Mapping[str, str]) -> list[Setting]:
    """What the variables in `VARIABLES` set; an empty one counts as absent."""
    settings: list[Setting] = []
    for prefix, known in (("", VARIABLES), ("OMPI_MCA_", PARAMETERS)):
        for row in known:
            value = environ.get(prefix + row.name)
            if value:
                settings += options.settings_of(prefix + row.name, row.field, row.read, value)
    return settings


def _parameters(found: Sequence[Section]) -> dict[str, str]:
    """All -mca parameters.  As in mpirun, a program's options must not name one twice; two programs may agree."""
    values: dict[str, str] = {}
    for part in found:
        own = [value for path, value in part.settings if path == "parameter"]
        for at, (key, value) in enumerate(own):
            if key in dict(own[:at]):
                raise UsageError(f"the parameter {key} was given twice", "-mca", "give it once")
            if values.setdefault(key, value) != value:
                raise UsageError(
                    f"the parameter {key} was given two values", "-mca", "it acts on all programs: give one"
                )
    if "mca_base_env_list" in values and any(path == "app.env+" for part in found for path, _ in part.settings):
        raise UsageError("mca_base_env_list and -x do not mix", "-mca", "write all variables with -x")
    return values


def _without_parameters(part: Section) -> tuple[Setting, ...]:
    return tuple(setting for setting in part.settings if setting[0] != "parameter")


def _help() -> None:
    from mslaunch.cli.help import help_text

    try:
        width = os.get_terminal_size(1).columns
    except OSError:
        width = 80
    raise Show(help_text(TABLE, width, PARAMETERS, VARIABLES))


def _version() -> None:
    from mslaunch import __version__

    raise Show(f"mslaunch {__version__}")


#: -mca parameters, and variables OMPI_MCA_*, that steer the launch
PARAMETERS = (
    Variable("orte_default_hostfile", "default_hostfile", readers.text, "as --default-hostfile"),
    Variable("orte_abort_on_non_zero_status", "abort_on_failure", readers.yes_no, "0: others go on when a rank fails"),
    Variable("odls_base_sigkill_timeout", "grace", readers.span, "as --grace"),
    Variable("plm_rsh_agent", "link.agent", readers.first_agent, "as --rsh-agent; of a list 'ssh : rsh' the first"),
    Variable("plm_rsh_args", "link.agent_args", readers.shell_words, "more arguments for that command"),
    Variable("rmaps_base_oversubscribe", "policy.oversubscribe", readers.yes_no, "1: as --oversubscribe"),
    Variable("rmaps_base_mapping_policy", "", readers.map_by, "as --map-by"),
    Variable("hwloc_base_binding_policy", "policy.bind_to", readers.bind_to, "as --bind-to"),
    Variable("orte_tag_output", "output.tag", readers.yes_no, "1: as --tag-output"),
    Variable("orte_timestamp_output", "output.timestamp", readers.yes_no, "1: as --timestamp-output"),
    Variable("mca_base_env_list", "app.env+", readers.variables, "as -x, with ';' between the variables"),
)

#: other variables that are read, weakest first
VARIABLES = (
    Variable("HYDRA_HOST_FILE", "default_hostfile", readers.text, "as --default-hostfile"),
    Variable("PRTE_MCA_prte_default_hostfile", "default_hostfile", readers.text, "as --default-hostfile"),
    Variable("MSLAUNCH_OVERSUBSCRIBE", "policy.oversubscribe", readers.yes_no, "1: as --oversubscribe"),
    Variable("MPIEXEC_TIMEOUT", "timeout", readers.limit, "as --timeout"),
)

RUN = "What to run"
HOSTS = "Hosts"
PLACE = "Placement"
IO = "Input and output"
END = "Time and failure"
LINK = "Reaching the hosts"
TELL = "Information"
LATER = "Not there yet"

#: names of mpirun 4.1 that mslaunch refuses, and what to do instead
_REFUSED: tuple[tuple[str, str], ...] = (
    ("rank-by", "ranks are numbered in the order of --map-by: choose --map-by slot or --map-by node"),
    ("app", "write the programs on the command line with a lone ':' between them"),
    ("rf rankfile", "use a hostfile with slots=N and --map-by"),
    ("nolocal", "leave this host out of the hostfile or -H"),
    ("npersocket ppr", "use -N for a number of ranks on each node"),
    ("cpus-per-proc cpus-per-rank", "bind inside the program, or leave the cores to the system: --bind-to none"),
    ("bycore", "use --map-by slot"),
    ("bind-to-socket", "use --bind-to core or --bind-to none"),
    ("cpu-set cpu-list", "put taskset before the program: mslaunch … taskset -c LIST PROGRAM"),
    ("use-hwthread-cpus", "write slots=N in the hostfile, or -H NAME:N"),
    ("report-bindings", "let the program print os.sched_getaffinity(0)"),
    ("cf cartofile", "leave it out"),
    ("xml xml-file", "use --tag-output, or --output-filename for a file of each rank"),
    ("xterm", "use --output-filename DIR and follow the files with tail -f"),
    ("index-argv-by-rank", "the rank is in OMPI_COMM_WORLD_RANK"),
    ("path", "name the program with its directory, or give -x PATH"),
    ("prefix", "give -x PATH and -x LD_LIBRARY_PATH"),
    ("preload-files s preload-binary", "copy the files to the hosts first, or use a shared directory"),
    ("set-cwd-to-session-dir", "use --wdir DIR"),
    ("am tune", "give each parameter with -mca KEY VALUE and each variable with -x"),
    ("launch-agent", "use --agent-python for the interpreter on the hosts, --rsh-agent for the way there"),
    ("personality", "leave it out: variables of all known libraries are set"),
    ("continuous enable-recovery", "use -mca orte_abort_on_non_zero_status 0: the other ranks go on"),
    ("disable-recovery", "leave it out: a rank that fails ends the job"),
    ("max-restarts", "start the command again from a script"),
    ("report-child-jobs-separately", "leave it out: there are no child jobs"),
    ("report-pid report-uri report-events", "use the shell's $! for the process id"),
    ("report-state-on-timeout get-stack-traces", "run the ranks under a tool that prints stacks, such as py-spy"),
    ("display-devel-map display-diffable-map display-topo output-proctable", "use --display-map"),
    ("display-devel-allocation", "use --display-allocation"),
    ("debug debugger tv", "start the debugger in the place of the program: mslaunch … gdb --args PROGRAM"),
    ("d debug-devel debug-daemons debug-daemons-file leave-session-attached show-progress", "use --verbose"),
    ("do-not-resolve use-regexp enable-instant-on-support fwd-mpirun-port", "leave it out: nothing here needs it"),
    ("dvm max-vm-size hnp terminate ompi-server", "leave it out: each mslaunch stands alone"),
)

_ALWAYS = "accepted, and changes nothing: "

TABLE: tuple[Option, ...] = (
    Option(("n", "np", "c"), "N", "number of ranks, 1 or more", RUN, "app.np", readers.ranks, "one for each slot"),
    Option(
        ("x",),
        "VAR[=VALUE]",
        "give the ranks this variable, or the value it has here; VAR may be a pattern, 'NCCL_*'; may be repeated",
        RUN,
        "app.env+",
        readers.variable,
    ),
    Option(("wdir", "wd"), "DIR", "working directory of the ranks", RUN, "app.wdir", readers.text, "the present one"),
    Option(
        ("mca", "gmca"),
        "KEY VALUE",
        "pass a parameter on to the MPI library of the ranks, as OMPI_MCA_KEY; those listed below steer mslaunch",
        RUN,
        "parameter",
        readers.parameter,
        status=PASSED,
    ),
    Option(("allow-run-as-root",), "", _ALWAYS + "mslaunch never refuses to run as root", RUN),
    Option(("noprefix",), "", _ALWAYS + "mslaunch has no installation prefix to pass on", RUN),
    Option(
        ("H", "host"),
        "LIST",
        "hosts to use, NAME[:SLOTS] with commas between; a name counts one slot each time; may be repeated",
        HOSTS,
        "app.hosts+",
        readers.texts,
        "this host",
    ),
    Option(
        ("hostfile", "machinefile"),
        "FILE",
        "file of hosts, one a line: NAME [slots=N]",
        HOSTS,
        "app.hostfile",
        readers.text,
        once=True,
    ),
    Option(
        ("default-hostfile",),
        "FILE",
        "hostfile to use where neither --hostfile nor -H is given",
        HOSTS,
        "default_hostfile",
        readers.text,
    ),
    Option(("novm",), "", _ALWAYS + "mslaunch only reaches hosts that get a rank", HOSTS),
    Option(
        ("map-by",),
        "POLICY",
        "slot: fill one node after the other; node: one rank a node in turn; ppr:N:node: as -N; "
        "each may end in :OVERSUBSCRIBE",
        PLACE,
        "",
        readers.map_by,
        "slot",
    ),
    Option(("bynode",), "", "as --map-by node", PLACE, "", readers.exactly("policy.map_by", "node")),
    Option(("byslot",), "", "as --map-by slot", PLACE, "", readers.exactly("policy.map_by", "slot")),
    Option(("N", "npernode"), "N", "ranks on each node", PLACE, "policy.per_node", readers.count),
    Option(("pernode",), "", "as -N 1", PLACE, "", readers.exactly("policy.per_node", 1)),
    Option(("oversubscribe",), "", "allow more ranks than slots", PLACE, "policy.oversubscribe", readers.on),
    Option(("nooversubscribe",), "", "do not allow that", PLACE, "policy.oversubscribe", readers.off),
    Option(
        ("bind-to",),
        "WHAT",
        "core: a core for each rank; none: leave the cores to the system",
        PLACE,
        "policy.bind_to",
        readers.bind_to,
        "none",
    ),
    Option(("bind-to-core",), "", "as --bind-to core", PLACE, "", readers.exactly("policy.bind_to", "core")),
    Option(
        ("output-filename",),
        "PATH[:MODIFIERS]",
        "write the output of each rank to PATH/1/rank.N/stdout and stderr as well; modifiers, with a comma between: "
        "nocopy (files only), nojobid (without the '1/'); other words are ignored, as in mpirun",
        IO,
        "",
        readers.output,
    ),
    Option(("merge-stderr-to-stdout",), "", "stderr joins stdout", IO, "output.merge", readers.on),
    Option(
        ("tag-output",),
        "",
        "begin each line with job, rank and stream: [1,0]<stdout>:",
        IO,
        "output.tag",
        readers.on,
    ),
    Option(("timestamp-output",), "", "begin each line with the time", IO, "output.timestamp", readers.on),
    Option(("stdin",), "RANK|all|none", "who gets the standard input", IO, "stdin", readers.stdin, "0"),
    Option(
        ("pty",),
        "auto|yes|no",
        "whether stdout of the ranks is a terminal, so that programs write line by line",
        IO,
        "output.pty",
        readers.choice("auto", "yes", "no"),
        "auto",
    ),
    Option(
        ("timeout",),
        "SECONDS",
        "end the job after so many seconds; 0 or less: never",
        END,
        "timeout",
        readers.limit,
        "MPIEXEC_TIMEOUT, or never",
    ),
    Option(("grace",), "SECONDS", "how long ranks have between SIGTERM and SIGKILL", END, "grace", readers.span, "2"),
    Option(
        ("rsh-agent",),
        "CMD",
        "reach hosts with this command (CMD HOST COMMAND…), split into words as a shell does",
        LINK,
        "link.agent",
        readers.agent,
        "built-in ssh",
    ),
    Option(
        ("ssh-accept-new",),
        "",
        "trust the key of a host that was never seen",
        LINK,
        "link.accept_new",
        readers.on,
    ),
    Option(
        ("connect-timeout",), "SECONDS", "how long a host may take to answer", LINK, "link.timeout", readers.wait, "15"
    ),
    Option(
        ("agent-python",), "PATH", "python on the hosts, 3.8 or newer", LINK, "link.python", readers.text, "python3"
    ),
    Option(("fanout",), "N", "hosts reached at one time", LINK, "link.fanout", readers.count, "32"),
    Option(("display-map",), "", "print which rank goes where", TELL, "display_map", readers.on),
    Option(("display-allocation",), "", "print the hosts and slots", TELL, "display_allocation", readers.on),
    Option(
        ("do-not-launch",),
        "",
        "stop short of starting anything; with --display-map, a dry run",
        TELL,
        "do_not_launch",
        readers.on,
    ),
    Option(("q", "quiet"), "", "say nothing but errors of the launch", TELL, "quiet", readers.on),
    Option(("v", "verbose"), "", "say what is being done", TELL, "verbose", readers.on),
    Option(("V", "version"), "", "print the version and exit", TELL, "", _version),
    Option(("h", "help"), "", "print this and exit", TELL, "", _help),
    *(Option(tuple(names.split()), "", todo, LATER, status=REFUSED) for names, todo in _REFUSED),
)
