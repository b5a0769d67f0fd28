"""The man page mslaunch(1), made of the tables that the parser reads; `mslaunch --man | man -l -` shows it."""

from __future__ import annotations

from mslaunch import __version__, errors
from mslaunch.cli import help_text, help_topics
from mslaunch.cli.dialects import OF_OWN_NAME
from mslaunch.cli.help_text import described, groups, merged, names_of, refused
from mslaunch.cli.parser.options import REFUSED

_HEAD = rf"""
.TH MSLAUNCH 1 "" "mslaunch {__version__}" "User Commands"
.nh
.SH NAME
mslaunch \- start the ranks of a parallel job on one host or many
.SH SYNOPSIS
.B mslaunch
[\fIoptions\fR] \fIprogram\fR [\fIarguments\fR] [: [\fIoptions\fR] \fIprogram\fR [\fIarguments\fR]]...
""".strip()
_DESCRIPTION = """\
mslaunch starts the ranks of a job on one host or many, gives them the variables by which they connect, shows their
output, and ends them together, whatever happens.
It takes the command line of Open MPI's mpirun and needs no MPI library. The other hosts only need sshd and Python 3.8
or newer.

Options end at the program's name, or at '--'; what follows is the program's.
A name takes one dash or two, and its value follows after a blank or '='.
Several programs make one job when a lone ':' stands between them.

Called as mpirun, mpiexec, orterun, mpiexec.hydra, msrun or torchrun (see --install-shims), or with --dialect as its
first word, it takes the command line of that launcher; --help then shows the options of that one.
A line that begins with an option of its own is msrun's (--worker_num=8) or torchrun's (--nproc-per-node=8).

mslaunch --help prints the everyday options, --help all everything, --help OPTION one option, and --help TOPIC what
belongs to a topic. The topics are """  # help_topics.words() follows
_CODES = (
    ("0", "every rank ended with 0"),
    ("N", "the rank that failed first exited with N, or was killed by signal N - 128"),
    (str(errors.EXIT_USAGE), "a bad option, hostfile, allocation or mapping; or mslaunch was killed by a signal"),
    (str(errors.EXIT_TIMEOUT), "--timeout or MPIEXEC_TIMEOUT was reached"),
    (str(errors.EXIT_NOT_STARTED), "the program is not executable, or its working directory cannot be entered"),
    (str(errors.EXIT_NOT_FOUND), "the program was not found"),
    (str(errors.EXIT_LOST), "a host or its agent was lost while ranks ran there"),
    (str(errors.EXIT_UNREACHED), "a host could not be reached, or no agent started there"),
)
_FILES = (
    ("~/.ssh/config, ~/.ssh/known_hosts, /etc/ssh/ssh_config", "how hosts are reached and verified"),
    ("~/.openmpi/mca-params.conf, /etc/openmpi/openmpi-mca-params.conf", "parameters, one a line: KEY = VALUE"),
)


def page() -> str:
    """The page, in roff with the man macros."""
    about, *others = (help_text.documentation(row.name) for row in OF_OWN_NAME)
    topics = ", ".join(help_topics.words())
    parts = [_HEAD, ".SH DESCRIPTION", *_paragraphs(f"{_DESCRIPTION}{topics}."), ".SH OPTIONS"]
    for group, members in groups(about.table).items():
        rows = [_entry(names_of(option), described(option)) for option in members if option.status != REFUSED]
        parts += [f".SS {_text(group)}", *rows] if rows else []
    parts += [".SS Refused", *_paragraphs("Using one prints what to use instead: " + refused(about.table) + ".")]
    parts += [".SH PARAMETERS", *_paragraphs("Given with --mca KEY VALUE, or as a variable OMPI_MCA_KEY.")]
    parts += [_entry(names, meaning) for names, meaning in merged(about.parameters)]
    parts += [".SH ENVIRONMENT", *(_entry(*pair) for pair in merged(about.variables))]
    parts += [".SH EXIT STATUS", *(_entry(code, meaning) for code, meaning in _CODES)]
    parts += [".SH FILES", *(_entry(names, meaning) for names, meaning in _FILES)]
    examples = [example for one in (about, *others) for example in one.examples]
    parts += [".SH EXAMPLES", *(_example(what, command) for what, command in examples)]
    parts += [".SH SEE ALSO", ".BR mpirun (1),", ".BR ssh_config (5)"]
    return "\n".join(parts) + "\n"


def _paragraphs(text: str) -> list[str]:
    return [f".PP\n{_text(paragraph)}" for paragraph in text.strip().split("\n\n")]


def _entry(names: str, described: str) -> str:
    return f".TP\n\\fB{_text(names)}\\fR\n{_text(described)}"


def _example(what: str, command: str) -> str:
    return f".PP\n{_text(what)}:\n.PP\n.RS 4\n.nf\n{_text(command)}\n.fi\n.RE"


def _text(text: str) -> str:
    """Text that roff leaves as it is: a plain dash becomes a hyphen, a dot or quote at a line's beginning a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("…", "...")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.splitlines())
