"""The options of the mpirun dialect that launches use every day; `mpirun_more` has all others.

One row an option; help, docs/options.md, the man page and completions are made of the same rows.  Nothing here says
how they are combined.  The one surprising thing: only readers from `cli.parser.readers` are used, so that this table
costs little.
"""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import PASSED, Option, Show, Variable

RUN = "What to run"
HOSTS = "Hosts"
PLACE = "Where ranks go"
BIND = "Which cpus they get"
IO = "Input and output"
END = "Time and failure"
MIND = "MindSpore's cluster"
LINK = "Reaching the hosts"
TELL = "Information"
NOT_HERE = "Refused"
GROUPS = (RUN, HOSTS, PLACE, BIND, IO, END, MIND, LINK, TELL, NOT_HERE)

#: other variables that are read, weakest first
VARIABLES = (
    Variable("HYDRA_HOST_FILE", "default_hostfile", readers.text, "as --default-hostfile"),
    Variable("MSLAUNCH_OVERSUBSCRIBE", "policy.oversubscribe", readers.yes_no, "1: as --oversubscribe"),
    Variable("MPIEXEC_TIMEOUT", "", readers.limit_by("MPIEXEC_TIMEOUT"), "as --timeout"),
)


class Version(Exception):  # noqa: N818 - no error: the parser knows under which name it was called
    """--version was asked for."""


def _version() -> None:
    raise Version


def _help() -> None:
    from mslaunch.cli.dialects import VERBS
    from mslaunch.cli.help.help_text import columns, help_text
    from mslaunch.cli.mpirun import parse as mpirun

    raise Show(help_text((*mpirun.table(), *VERBS), columns(), mpirun.parameters(), mpirun.variables()))


EVERYDAY: tuple[Option, ...] = (
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
        ("mca", "gmca", "omca", "gomca"),
        "KEY VALUE",
        "pass a parameter on to the MPI library of the ranks, as OMPI_MCA_KEY; those listed below steer mslaunch",
        RUN,
        "parameter",
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
    Option(("merge-stderr-to-stdout",), "", "stderr joins stdout", IO, "output.merge", readers.on),
    Option(
        ("tag-output",),
        "",
        "begin each line with job, rank and stream: [1,0]<stdout>:",
        IO,
        "",
        readers.exactly("output.tag", "tag"),
    ),
    Option(("timestamp-output",), "", "begin each line with the time", IO, "output.timestamp", readers.on),
    Option(("stdin",), "RANK|all|none", "who gets the standard input", IO, "stdin", readers.stdin, "0"),
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
        "reach hosts with this command (CMD HOST COMMAND…), split into words as a shell does",
        LINK,
        "link.agent",
        readers.agent,
        "built-in ssh",
    ),
    Option(("q", "quiet"), "", "say nothing but errors of the launch", TELL, "quiet", readers.on),
    Option(("v", "verbose"), "", "say what is being done", TELL, "verbose", readers.on),
    Option(("V", "version"), "", "print the version and exit", TELL, "", _version),
    Option(("h", "help"), "", "print this and exit", TELL, "", _help),
)
