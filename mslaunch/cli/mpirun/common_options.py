"""The everyday options of the mpirun dialect; `rare_options` has the others.

Help, docs/options.md, the man page and completions are made of the same rows.  Every launch imports this module, so
its rows only use readers of `cli.parser.readers`.
"""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import PASSED, Option, Variable, show_help, show_version

RUN = "What to run"
HOSTS = "Hosts"
PLACE = "Where ranks go"
BIND = "Which cpus they get"
IO = "Input and output"
END = "Time and failure"
LINK = "Reaching the hosts"
TELL = "Information"
NOT_HERE = "Refused"


def _hydras_hosts(word: str) -> list[tuple[str, object]]:
    """A file of hosts for hydra, which cuts no name: in pods only the whole ones have addresses."""
    return [("default_hostfile", word), ("mca+", (("orte_keep_fqdn_hostnames", "1"),))]


#: other variables that are read, weakest first
VARIABLES = (
    Variable("HYDRA_HOST_FILE", "", _hydras_hosts, "as --default-hostfile"),
    Variable(
        "I_MPI_HYDRA_HOST_FILE",
        "",
        _hydras_hosts,
        "as --default-hostfile; I_MPI_PERHOST is the number of ranks on each of its hosts, if nothing else says "
        "where ranks go",
    ),
    Variable("MSLAUNCH_OVERSUBSCRIBE", "policy.oversubscribe", readers.yes_no, "1: as --oversubscribe"),
    Variable("MSLAUNCH_GRACE", "grace", readers.span, "as --grace"),
    Variable("MPIEXEC_TIMEOUT", "", readers.limit_by("MPIEXEC_TIMEOUT"), "as --timeout"),
)


USAGE = "Usage: mslaunch [options] program [arguments]"
EXAMPLES = (
    ("4 ranks on this host", "mslaunch -n 4 python train.py"),
    ("one rank for each slot of a file of hosts", "mslaunch --hostfile hosts python train.py"),
    ("8 ranks on two hosts", "mslaunch -n 8 -H node01:4,node02:4 python train.py"),
    ("a log for each rank, and a quiet terminal", "mslaunch -n 4 --output-filename logs:nocopy python train.py"),
    (
        "see where ranks would go, start nothing",
        "mslaunch --hostfile hosts --display-map --do-not-launch python train.py",
    ),
)

EVERYDAY: tuple[Option, ...] = (
    Option(("n", "np", "c"), "N", "number of ranks, 1 or more", RUN, "app.np", readers.ranks, "one for each slot"),
    Option(
        ("x",),
        "VAR[=VALUE]",
        "set this variable for the ranks, or forward its value; VAR may be a pattern, 'NCCL_*'; may be repeated",
        RUN,
        "app.env+",
        readers.variable,
    ),
    Option(("wdir", "wd"), "DIR", "working directory of the ranks", RUN, "app.wdir", readers.text, "the current one"),
    Option(
        ("mca", "gmca", "omca", "gomca"),
        "KEY VALUE",
        "pass a parameter on to the MPI library of the ranks, as OMPI_MCA_KEY; those listed below steer mslaunch",
        RUN,
        "own.parameter",
        readers.parameter,
        status=PASSED,
    ),
    Option(("allow-run-as-root",), "", "accepted: mslaunch never refuses to run as root", RUN, "", readers.nothing),
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
    Option(("oversubscribe",), "", "allow more ranks than slots", PLACE, "policy.oversubscribe", readers.on),
    Option(
        ("output-filename",),
        "PATH[:MODIFIERS]",
        "write the output of each rank to PATH/1/rank.N/stdout and stderr as well; modifiers, with a comma between: "
        "nocopy (files only), nojobid (without the '1/'); other words are ignored, as in mpirun",
        IO,
        "",
        readers.output,
    ),
    Option(("merge-stderr-to-stdout",), "", "merge stderr into stdout", IO, "output.merge", readers.on),
    Option(
        ("tag-output",),
        "",
        "begin each line with job, rank and stream: [1,0]<stdout>:",
        IO,
        "",
        readers.exactly("output.tag", "tag"),
    ),
    Option(("timestamp-output",), "", "begin each line with the time", IO, "output.timestamp", readers.on),
    Option(("stdin",), "RANK|all|none", "which rank gets standard input", IO, "stdin", readers.stdin, "0"),
    Option(
        ("timeout",),
        "SECONDS",
        "end the job after so many seconds; 0 or less: never",
        END,
        "",
        readers.limit_by("--timeout"),
        "MPIEXEC_TIMEOUT, or never",
    ),
    Option(
        ("rsh-agent",),
        "CMD",
        "reach hosts with this command: CMD HOST COMMAND, CMD with {host} and {command} in it, or 'kubectl exec -i'; "
        "divided into words as by a shell",
        LINK,
        "link.agent",
        readers.agent,
        "built-in ssh",
    ),
    Option(("q", "quiet"), "", "print only errors of the launch", TELL, "quiet", readers.on),
    Option(("v", "verbose"), "", "report what is being done", TELL, "verbose", readers.on),
    Option(
        ("V", "version"),
        "",
        "print the version and exit; with --verbose also the facts for a bug report",
        TELL,
        "",
        show_version,
    ),
    Option(
        ("h", "help"),
        "[TOPIC]",
        "print the everyday options; what belongs to a topic; one option; or all",
        TELL,
        "",
        show_help,
    ),
)
