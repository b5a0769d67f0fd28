"""The table of dialects: the launchers whose command lines mslaunch takes, and the names of their commands.

To add a dialect, write a folder whose module `parse` satisfies `parser.dialect_contract.Dialect`, and a row.  A module
is imported when its dialect is used.
"""

from __future__ import annotations

import os

from mslaunch.cli.parser.options import Option
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.cli.parser.dialect_contract import Dialect

OWN = "mslaunch"
#: a command of Open MPI that starts nothing, by which programs see whether Open MPI is there (`cli.ompi_info`)
INFO = "ompi_info"
#: commands that both Open MPI and MPICH have: of a link called so, what it leads to decides
SHARED = ("mpirun", "mpiexec")
SHELLS = ("bash", "zsh", "fish")
_LINKS = 40  # so many links in a row are followed, as by the kernel


class DialectRow(NamedTuple):
    """One dialect, before its module is imported."""

    name: str
    module: str  # for `faststd.load`
    shims: tuple[str, ...]  # commands that --install-shims makes if no names are given
    commands: tuple[str, ...] = ()  # other names under which a command takes this dialect
    reads_pods: bool = False  # its module asks for itself which part of a job a pod is (`cli.main.in_pod`)
    mark: str = ""  # under our own name, a first option of this dialect that contains `mark` selects it
    firsts: tuple[str, ...] = ()  # so do these options of this dialect, written in full, also with `_` for `-`

    def load(self) -> Dialect:
        """Its module, which is imported now."""
        dialect: Dialect = load(self.module)
        return dialect


#: the first one is the dialect of our own name
DIALECTS: tuple[DialectRow, ...] = (
    DialectRow(
        "mpirun", "cli.mpirun:parse", ("mpirun", "mpiexec"), ("orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi")
    ),
    DialectRow("hydra", "cli.hydra:parse", ("mpiexec.hydra",), ("mpirun.hydra", "mpiexec.mpich", "mpirun.mpich")),
    DialectRow("msrun", "cli.msrun:parse", ("msrun",), reads_pods=True, mark="_"),
    DialectRow("torchrun", "cli.torchrun:parse", ("torchrun",), firsts=(
        "nproc-per-node", "nnodes", "node-rank", "standalone", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf",
        "master-addr", "master-port", "no-python", "run-path", "log-dir", "local-ranks-filter", "local-addr",
        "monitor-interval", "start-method", "redirects", "tee", "role", "module", "virtual-local-rank", "use-env",
        "shutdown-timeout", "log-line-prefix-template",
    )),
)  # fmt: skip
#: the dialects whose options our own name takes
OF_OWN_NAME = tuple(row for row in DIALECTS if row is DIALECTS[0] or row.mark or row.firsts)
NAMES = tuple(row.name for row in DIALECTS)
#: name of a command -> its dialect
COMMANDS = {command: row for row in DIALECTS for command in (*row.shims, *row.commands)}

#: options that must come first, and do something else than a launch
ACTIONS: tuple[Option, ...] = tuple(
    Option(names, metavar, help, "Instead of a launch, as the first word", default=default)
    for names, metavar, help, default in (
        (("dialect",), "|".join(NAMES), "the words that follow are in this dialect", NAMES[0]),
        (("install-shims",), "DIR [NAME…]",
         "make links in DIR that are called mpirun, mpiexec, mpiexec.hydra, msrun and torchrun, or NAME (also orterun, "
         "mpirun=hydra, mpiexec=hydra), and select that dialect; also ompi_info, by which programs see Open MPI", ""),
        (("status",), "[JOB]", "show the jobs that run here, and what became of detached ones (msrun's "
         "--join=False), or of one; then the exit code is 0 while it runs, and the job's once it has ended", ""),
        (("stop",), "JOB", "end a job, and wait until it has ended", ""),
        (("top",), "JOB", "show the ranks of a job that runs: state, CPU, memory, last line, seconds since it", ""),
        (("stacks",), "JOB", "show where each rank of a job that runs is, equal stacks once", ""),
        (("logs",), "JOB [-r RANKS] [-f]", "show the log files of a job, or of some ranks; -f: follow them", ""),
        (("report",), "FILE [-o PAGE]", "write a page (HTML) that shows the run whose run.json is FILE: run.html "
         "beside it, or PAGE, - for standard output", ""),
        (("rerun",), "FILE [OPTION…]", "run the command line of the run whose run.json is FILE once more, in its "
         "directory, with these options before its own; values of -x are taken from the environment; a record that "
         "others could have written is refused", ""),
        (("rerun-untrusted",), "FILE [OPTION…]", "as --rerun, also for a record that others could have written: it may "
         "run anything as you, so read it first, with --report", ""),
        (("completion",), "|".join(SHELLS), "print the completion of this shell", ""),
        (("man",), "", "print the man page, for man -l -", ""),
    )
)  # fmt: skip


#: options that mpirun's, msrun's and torchrun's dialects have alike: flags, and those with a value
COMMON_FLAGS = frozenset((
    "report-bindings", "fold", "ssh-accept-new", "q", "quiet", "v", "verbose", "display-table", "display-allocation",
    "display-devel-allocation", "do-not-launch", "check", "json",
))  # fmt: skip
COMMON_VALUED = frozenset((
    "x", "H", "host", "hostfile", "machinefile", "resource-manager", "devices-per-rank", "devices", "pty", "timeout",
    "grace", "term-to", "warn", "hang-timeout", "on-hang", "stacks-on", "restart-delay", "max-restart-delay",
    "progress-file", "max-no-progress", "device-wait", "health-check", "health-check-timeout", "record", "events",
    "on-event", "metrics", "progress", "rsh-agent", "connect-timeout", "spawn-timeout", "wait-hosts", "agent-python",
    "fanout", "heartbeat", "lease", "color",
))  # fmt: skip


def called_as(path: str) -> str:
    """The name of the command.

    Of a link that is called mpirun or mpiexec, the first other name of a launcher that it leads to.
    """
    name = os.path.basename(path)
    for _ in range(_LINKS):
        if os.path.basename(path) not in SHARED:
            break
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:
            break
    target = os.path.basename(path)
    return target if name in SHARED and target in COMMANDS else name


def by_name(name: str) -> DialectRow:
    """The row of a dialect."""
    return next(row for row in DIALECTS if row.name == name)


def selected(words: Sequence[str]) -> DialectRow | None:
    """The dialect that the first option selects which not all have: in `--check --hostfile hosts --worker_num=8`."""
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.lstrip("-").partition("=")
        if word[:1] != "-" or not (name in COMMON_FLAGS or name in COMMON_VALUED):
            return marked(word)
        if name in COMMON_VALUED and not equals:
            next(rest, "")
    return None


def marked(word: str) -> DialectRow | None:
    """The dialect that a first option selects by itself: `--worker_num=8`, which may be shortened."""
    bare = word[2:].partition("=")[0]
    for row in DIALECTS if word[:2] == "--" else ():
        if bare.replace("_", "-") in row.firsts:
            return row
        if row.mark and row.mark in bare:
            own = row.load().describe().own
            if any(name.startswith(bare) for option in own for name in option.names):
                return row
    return None
