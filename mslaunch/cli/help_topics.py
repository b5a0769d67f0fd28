"""What --help prints: a screen of everyday options, a topic, one option, or everything.

A topic collects groups and single options of the dialect at hand, with a few sentences and the page of docs/ that has
more.  The categories of mpirun 4.1's --help (`mapping`, `launch`, …) are other names of topics.
"""

from __future__ import annotations

import os

from mslaunch.cli import help_text
from mslaunch.cli.dialects import ACTIONS, DIALECTS, NAMES, by_name
from mslaunch.cli.parser.options import REFUSED, Option, Variable, spelled
from mslaunch.cli.parser.options import by_name as options_by_name
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.cli.parser.dialect_contract import DialectHelp

ALL = "all"
_WIDTH = 80  # of the screen, which fits 24 lines
_SHOWN_EXAMPLES = 2
_WATCHING = "Watch it: --check before, --top and --logs while it runs, --report afterwards"
_INTRO = "Start the ranks of a job on one host or many, and end them together."


class Topic(NamedTuple):
    """One word that --help takes."""

    name: str
    about: str  # a few sentences
    groups: tuple[str, ...] = ()  # titles of groups, in any dialect
    options: str = ""  # first names of more options
    page: str = ""  # of docs/
    aliases: str = ""  # other words for it, with blanks between
    parameters: bool = False
    variables: bool = False


TOPICS: tuple[Topic, ...] = (
    Topic("run", "The program comes behind the options, and its arguments behind it. A lone ':' begins another program "
          "of the same job: mslaunch -n 1 ./master : -n 3 ./worker.",
          ("What to run", "Environment"), page="options.md", aliases="general program environment compatibility"),
    Topic("hosts", "Without hosts all ranks run here, or on the hosts of the batch job that mslaunch runs in. The "
          "other hosts need sshd and a python3 of 3.8 or newer.",
          ("Hosts",), page="hostfile.md", aliases="slots hostfiles"),
    Topic("connections", "Hosts are reached by a built-in SSH that reads ~/.ssh/config, or by a program of yours.",
          ("Reaching the hosts",), page="security.md", aliases="ssh launch"),
    Topic("batch", "In a job of Slurm, PBS, LSF, Grid Engine or Flux its hosts and slots are used as they are: name "
          "none.", options="resource-manager rmk launcher", page="clusters.md",
          aliases="slurm pbs lsf sge gridengine flux"),
    Topic("placement", "Which rank runs on which host. See it first: --display-map --do-not-launch.",
          ("Where ranks go", "Placement and binding", "Placement"), "display-map display-table do-not-launch",
          "placement.md", aliases="mapping ranking"),
    Topic("binding", "Which cpus a rank may use. One or two ranks are bound to a core each, as by mpirun; programs "
          "with threads want --bind-to none.", ("Which cpus they get", "Placement and binding"),
          "bind_core bind_numa bind-to report-bindings", "placement.md"),
    Topic("devices", "Accelerators of a node, dealt to its ranks by the variables of CUDA, CANN, ROCm and oneAPI.",
          options="devices-per-rank devices", page="placement.md", aliases="gpu npu"),
    Topic("output", "What ranks print is shown here as it comes. It can be tagged, and written to files of each rank.",
          ("Input and output", "Output"), page="output.md", aliases="input logs io"),
    Topic("failures", "The first rank that fails ends the job; the exit code is that of this rank.",
          ("Time and failure", "Failure", "Failures"), page="exit-codes.md", aliases="timeout signals"),
    Topic("restart", "With --restart group all ranks start again when one fails or a host is lost: mslaunch --restart "
          "group --max-restarts 3 … A `spare` host of the hostfile takes the place of a lost one.",
          options="restart max-restarts restart-delay max-restart-delay min-ranks progress-file max-no-progress "
          "device-wait enable-recovery disable-recovery nnodes",
          page="recovery.md", aliases="recovery"),
    Topic("hangs", "A job in which nothing happens is reported, ended or started again, with the stacks of its ranks.",
          options="hang-timeout on-hang stacks-on get-stack-traces report-state-on-timeout progress-file timeout",
          page="hangs.md", aliases="hang stacks"),
    Topic("jobs", "A launch that has run for a second can be asked from another terminal: mslaunch --status, then "
          "mslaunch --top JOB. A detached job goes on when its command has returned: mslaunch --detach …",
          options="detach join status stop top stacks logs rerun rerun-untrusted", page="jobs.md", aliases="detach"),
    Topic("mpi", "Programs of Open MPI, MPICH and Intel MPI find each other without more; the protocol is found by the "
          "MPI library of the program.",
          options="mpi spawn mca prtemca pmixmca backend stream-buffering with-ft", page="mpi.md",
          aliases="openmpi mpich"),
    Topic("mindspore", "mslaunch -n 8 python net.py starts the ranks and the scheduler of MindSpore's Dynamic Cluster. "
          "msrun's options work as well: mslaunch --worker_num=8 net.py; --help msrun lists them.",
          ("MindSpore's cluster",), page="mindspore.md", aliases="ascend"),
    Topic("torch", "Ranks get what torch.distributed.init_process_group() reads: mslaunch -n 4 python train.py. "
          "torchrun's options work as well: mslaunch --nproc-per-node=4 train.py; --help torchrun lists them.",
          options="devices-per-rank restart max-restarts bind-to", page="frameworks.md",
          aliases="pytorch accelerate deepspeed lightning"),
    Topic("jax", "jax.distributed.initialize() needs no arguments: mslaunch -n 2 python train.py.",
          options="devices-per-rank bind-to", page="frameworks.md"),
    Topic("frameworks", "Variables of every framework that mslaunch knows are set; these need to be asked for.",
          options="env-for horovod fill ready", page="frameworks.md", aliases="horovod tensorflow paddle ray"),
    Topic("monitoring", "What happens is written to files, or handed to a command; a record of the run lies beside the "
          "logs.", ("Monitoring and records",), "report", "events.md", aliases="events record metrics"),
    Topic("information", "What mslaunch prints about itself and the launch.", ("Information",), page="options.md",
          aliases="debug devel display"),
    Topic("commands", "As the first word, instead of a launch.", options=" ".join(row.names[0] for row in ACTIONS),
          page="dialects.md", aliases="shims completion man dialects unsupported dvm"),
    Topic("parameters", "Given with --mca KEY VALUE, or as a variable OMPI_MCA_KEY. All other parameters go to the MPI "
          "library of the ranks.", page="options.md", aliases="mca-parameters", parameters=True),
    Topic("variables", "An option is stronger.", page="options.md", variables=True),
)  # fmt: skip


def words() -> tuple[str, ...]:
    """All words to offer: topics, dialects, `all`."""
    return (*(topic.name for topic in TOPICS), *NAMES, ALL)


def text(dialect: str, asked: str = "") -> str:
    """What --help prints in this dialect, of a topic if one is asked for.  Raises `UsageError` for an unknown one."""
    about = by_name(dialect).load().describe()
    if not asked:
        return screen(about, dialect)
    width = _width()
    if asked == ALL:
        return help_text.help_text(help_text.documentation(dialect), width)
    bare = asked.lstrip("-")
    topic = next((topic for topic in TOPICS if bare in (topic.name, *topic.aliases.split())), None)
    single = _option(about, bare, width)
    if topic and (bare == asked or not single):
        return _topic(about, topic, width)
    if bare in NAMES:
        return screen(by_name(bare).load().describe(), bare)
    if single:
        return single
    from mslaunch.cli.parser import readers

    options = (name for row in about.table if row.status != REFUSED for name in row.names)
    near = readers.meant(bare, (*words(), *options))
    todo = "\n".join([near] * bool(near) + help_text.wrap("the topics are " + ", ".join(words()), _WIDTH - 2))
    raise UsageError(f"there is no topic and no option {asked!r}", "--help", todo)


def screen(about: DialectHelp, dialect: str) -> str:
    """The everyday options of a dialect, in at most 24 lines of 80 columns."""
    own = dialect == DIALECTS[0].name
    table = options_by_name((*about.table, *(ACTIONS if own else ())))
    lines = [about.usage.partition(", or")[0], _INTRO, ""]
    lines += [help_text.short_entry(table[name], meaning, _WIDTH) for name, meaning in about.everyday]
    examples = [command for _, command in about.examples if len(command) < _WIDTH - 2][:_SHOWN_EXAMPLES]
    watching = [_WATCHING] if own else []
    examples = examples[: len(examples) - len(watching)]
    lines += ["", *("  " + command for command in examples), "", *watching]
    begin = "mslaunch" if own else f"mslaunch --dialect {dialect}"
    lines += [f"More: {begin} --help TOPIC, or --help OPTION"]
    lines += help_text.wrap(f"Topics: {', '.join(words())}", _WIDTH)
    return "\n".join(lines)


def members(about: DialectHelp, topic: Topic, actions: bool) -> list[Option]:
    """The options of a topic, in the order of the dialect's table; those that are refused are left out."""
    names = topic.options.split()
    table = (*about.table, *(ACTIONS if actions else ()))
    found = [row for row in table if row.status != REFUSED]
    return [row for row in found if row.group in topic.groups or row.names[0] in names]


def _topic(about: DialectHelp, topic: Topic, width: int) -> str:
    parts = ["\n".join(help_text.wrap(topic.about, width))]
    rows = [help_text.entry_of(row, width) for row in members(about, topic, about.whose == DIALECTS[0].name)]
    rows += _entries(about.parameters if topic.parameters else (), width)
    rows += _entries(about.variables if topic.variables else (), width)
    parts += ["\n".join(rows)] if rows else [f"{about.whose} has no options for it."]
    return "\n\n".join([*parts, f"More: {page_of(topic.page)}"])


def page_of(name: str) -> str:
    """Where a page of docs/ is: below the prefix of an installation, as man pages are, or docs/ of the source."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parts = package.split(os.sep)[:-1]
    while parts:
        place = os.sep.join((*parts, "share", "doc", "mslaunch", name))
        if os.path.exists(place):
            return place
        parts.pop()
    return f"docs/{name}"


def _entries(rows: Iterable[Variable], width: int) -> list[str]:
    return [help_text.entry(names, meaning, width) for names, meaning in help_text.merged(rows)]


def _option(about: DialectHelp, name: str, width: int) -> str:
    """One option, parameter or variable; "" if no dialect has it."""
    others = [by_name(each).load().describe() for each in NAMES if each != about.whose]
    for one in (about, about._replace(whose="mslaunch", own=ACTIONS, shared=()), *others):
        row = next((row for row in one.table if name in row.names), None)
        variables = [row for row in (*one.parameters, *one.variables) if row.name == name]
        if row or variables:
            found = [_described(row, width)] if row else _entries(variables, width)
            return "\n".join([*found, *[f"It is an option of {one.whose}."] * (one in others)])
    return ""


def _described(row: Option, width: int) -> str:
    if row.status != REFUSED:
        topics = [topic.name for topic in TOPICS if row.group in topic.groups or row.names[0] in topic.options.split()]
        more = f"\n\nTopic: {', '.join(topics)}" if topics else ""
        return help_text.entry_of(row, width) + more
    why, _, instead = row.help.partition("; ")
    names = ", ".join(spelled(name) for name in row.names)
    return "\n".join([*help_text.wrap(f"{names}: mslaunch does not have it: {why}.", width), f"  {instead}"])


def _width() -> int:
    """The columns of texts, on a terminal and elsewhere."""
    from mslaunch.launcher import terminal_size

    return max(60, min(terminal_size.columns(1, _WIDTH), 100))
