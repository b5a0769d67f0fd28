"""The options of the torchrun dialect; help, docs/dialects.md and completion are made of the same rows.

Names are written with dashes or underscores.  PET_NAME in the environment stands for an option that is not given.
"""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import DONE, REFUSED, Option, Variable, show_help, show_version
from mslaunch.cli.torchrun import readers as own_readers
from mslaunch.faststd import NamedTuple

RUN = "What to run"
HOSTS = "Hosts"
IO = "Output"
END = "Failures"
TELL = "Information"
NOT_HERE = "Refused"

USAGE = "Usage: torchrun [options] script [arguments], or mslaunch --nproc-per-node=N [options] script [arguments]"
SYNTAX = (
    "Options end at the script, or at '--'. A name takes two dashes, with dashes or underscores between its words, and "
    "may be shortened while it is clear; its value follows after a blank or '='. The script is run by python -u."
)
EXAMPLES = (
    ("4 ranks on this host", "torchrun --nproc-per-node=4 train.py"),
    ("8 on each of two hosts, by one command", "torchrun --nproc-per-node=8 -H node1,node2 train.py"),
    (
        "the same by a command on each host, with its own --node-rank",
        "torchrun --nnodes=2 --node-rank=0 --master-addr=node1 --nproc-per-node=8 train.py",
    ),
    (
        "the same line on each of two hosts, which get their numbers when they meet on node1",
        "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node1:29400 train.py",
    ),
    (
        "at least 3 hosts, at most 4, and all ranks again from their checkpoints if one fails",
        "torchrun --nnodes=3:4 --max-restarts=3 --hostfile hosts --nproc-per-node=8 train.py",
    ),
    ("logs of each rank, and on the terminal too", "torchrun --nproc-per-node=2 --log-dir=logs --tee=3 train.py"),
)
#: the everyday options, as `DialectHelp.everyday` has them
SCREEN = (
    ("nproc-per-node", "ranks on each host"),
    ("H", "hosts of all ranks, with commas between"),
    ("hostfile", ""),
    ("nnodes", "hosts; MIN:MAX: at least and at most"),
    ("node-rank", "number of this host, where each has its own command"),
    ("master-addr", "the host of node 0"),
    ("master-port", "the port at which ranks meet"),
    ("rdzv-backend", "c10d: hosts get their numbers when they meet"),
    ("rdzv-endpoint", "where hosts meet"),
    ("max-restarts", ""),
    ("log-dir", "logs of each rank"),
    ("tee", "3: stdout and stderr to files, and shown"),
)
#: options of mslaunch itself, by their first names in the table of mpirun
EXTRAS = (
    "H", "hostfile", "x", "pty", "grace", "term-to", "timeout", "warn", "rsh-agent", "ssh-accept-new", "bind-to",
    "resource-manager", "wait-hosts", "connect-timeout", "agent-python", "fanout", "heartbeat", "lease",
    "devices-per-rank", "devices", "horovod", "env-for", "display-table", "display-allocation", "do-not-launch",
    "record", "events", "on-event", "metrics", "progress",
    "report-bindings", "restart-delay", "max-restart-delay", "progress-file", "max-no-progress",
    "check", "json", "health-check", "health-check-timeout",
    "device-wait", "hang-timeout", "on-hang", "stacks-on", "fold", "color", "q", "v",
)  # fmt: skip
#: the help of -H, which means something else to mpirun
HOSTS_HELP = "hosts of all ranks, NAME with commas between; --nproc-per-node ranks on each; may be repeated"

SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  #: those that end the job
#: options of torchrun and what mpirun's dialect has for them
INSTEAD = {
    "nproc-per-node": "-N N for N ranks on each host, or -n N for N in all",
    "nnodes": "-H node1,node2 for the hosts",
    "standalone": "nothing: one host needs no rendezvous",
    "no-python": "the program as it is; python is only run if you write it",
    "module": "python -m MODULE",
    "run-path": "python SCRIPT",
    "log-dir": "--output-filename DIR",
    "redirects": "--output-filename DIR:nocopy",
    "tee": "--output-filename DIR --tag-output",
    "max-restarts": "--restart group --max-restarts N",
}


class TorchrunOptions(NamedTuple):
    """The options of torchrun itself; None: not given."""

    nodes: tuple[int, int] | None = None  # --nnodes, the fewest and the most
    each: int | str = 1  # --nproc-per-node
    node: int = 0  # --node-rank
    address: str | None = None  # --master-addr
    port: int | None = None  # --master-port
    local_address: str = ""  # --local-addr
    standalone: bool = False
    backend: str = "static"  # --rdzv-backend
    endpoint: tuple[str, int | None] | None = None  # --rdzv-endpoint
    run_id: str = "none"  # --rdzv-id
    conf: tuple[tuple[str, str], ...] = ()  # --rdzv-conf
    restarts: int = 0  # --max-restarts
    role: str = "default"
    module: bool = False  # -m
    plain: bool = False  # --no-python
    run_path: bool = False
    logs: str = ""  # --log-dir
    redirects: tuple[tuple[int, int], ...] = ()
    tee: tuple[tuple[int, int], ...] = ()
    template: str = ""  # --log-line-prefix-template
    shown: tuple[int, ...] | None = None  # --local-ranks-filter
    virtual: bool = False  # --virtual-local-rank
    patience: int | None = None  # --shutdown-timeout
    secret_file: str = ""  # by which commands that meet know each other


def _row(
    names: str, metavar: str, help: str, group: str, field: str = "", read: object = None, default: str = ""
) -> Option:
    """A row whose long names are also written with underscores."""
    both = tuple(spelling for name in names.split() for spelling in dict.fromkeys((name, name.replace("-", "_"))))
    reader = read or (readers.on if not metavar else readers.text)
    return Option(both, metavar, help, group, field, reader, default, DONE)  # type: ignore[arg-type]


def _refused(names: str, help: str) -> Option:
    return _row(names, "", help, NOT_HERE)._replace(status=REFUSED)


TABLE: tuple[Option, ...] = (
    _row("nproc-per-node", "N|auto|cpu|gpu|xpu", "ranks on this host, or on each of those that -H or --hostfile name; "
         "a word: one for each such device of this host", RUN, "own.each", own_readers.nproc, "1"),
    _row("module m", "", "the script is a module: python -m", RUN, "own.module"),
    _row("no-python", "", "the script is a program of its own, not to be run by python", RUN, "own.plain"),
    _row("run-path", "", "the script is a path, run by python; stronger than --no-python", RUN, "own.run_path"),
    _row("role", "NAME", "as ROLE_NAME, and in the prefix of --tee", RUN, "own.role", str, "default"),
    _row("virtual-local-rank", "", "LOCAL_RANK is 0 for all, and CUDA_VISIBLE_DEVICES has one device for each", RUN,
         "own.virtual"),
    _row("start-method", "spawn|fork|forkserver", "accepted: ranks are programs, as with torchrun", RUN, "",
         own_readers.usual("spawn", "fork", "forkserver"), "spawn"),
    _row("use-env", "", "accepted: ranks always find their numbers in the environment", RUN, "", readers.nothing),
    _row("nnodes", "N|MIN:MAX", "hosts; with -H or --hostfile at least MIN and at most MAX of those, the others are "
         "spares", HOSTS, "own.nodes", own_readers.nnodes, "1; with -H all of them"),
    _row("node-rank", "N", "number of this host where each has a command of its own, from 0", HOSTS, "own.node",
         own_readers.node_rank, "0"),
    _row("master-addr", "HOST", "the host of node 0: a name, or an address of IPv4 or IPv6", HOSTS, "own.address",
         own_readers.address, "127.0.0.1"),
    _row("master-port", "PORT", "the port at which ranks meet; it is an error if it is in use", HOSTS, "own.port",
         own_readers.port, "29500 on several hosts, else one that is free"),
    _row("local-addr", "HOST", "as MASTER_ADDR, on one host without --master-port", HOSTS, "own.local_address",
         own_readers.address),
    _row("standalone", "", "one host, whatever else says where ranks meet", HOSTS, "own.standalone"),
    _row("rdzv-backend", "static|c10d", "static: hosts have numbers; c10d: they get them when all have met",
         HOSTS, "own.backend", readers.text, "static"),
    _row("rdzv-endpoint", "HOST[:PORT]", "instead of --master-addr and --master-port", HOSTS, "own.endpoint",
         own_readers.endpoint),
    _row("rdzv-id", "ID", "as TORCHELASTIC_RUN_ID, and in the name of the directory for logs", HOSTS, "own.run_id",
         own_readers.run_id, "none; without --master-port on one host a random one"),
    _row("rdzv-conf", "KEY=VALUE,…", "for c10d: join_timeout, seconds for all to come (600); last_call_timeout, for "
         "more than the fewest (30); is_host; secret_file, which all commands share "
         "(~/.config/mslaunch/rendezvous-secret); other keys are accepted", HOSTS, "own.conf", own_readers.settings),
    _row("log-dir", "DIR", "DIR/ID_xxx/attempt_N/LOCAL_RANK has stdout.log, stderr.log and error.json of each rank; "
         "with -H RANK instead of LOCAL_RANK; /dev/null: none", IO, "own.logs", readers.text,
         "a new one in TMPDIR or /tmp, which is removed at the end if it is empty"),
    _row("redirects r", "0-3|RANK:0-3,…", "1 stdout, 2 stderr, 3 both: to files, not to the terminal", IO,
         "own.redirects", own_readers.streams, "0"),
    _row("tee t", "0-3|RANK:0-3,…", "the same, and to the terminal with a prefix", IO, "own.tee",
         own_readers.streams, "0"),
    _row("log-line-prefix-template", "TEXT", "that prefix; ${role_name}, ${local_rank}, ${rank} and ${hostname} are "
         "replaced", IO, "own.template", str, "[${role_name}${local_rank}]:"),
    _row("local-ranks-filter", "RANKS", "only these local ranks reach the terminal, as 0,1", IO, "own.shown",
         own_readers.local_ranks, "all"),
    _row("max-restarts", "N", "how often all ranks are started again if one fails", END, "own.restarts",
         readers.count_or_zero, "0"),
    _row("shutdown-timeout", "SECONDS", "from SIGTERM to SIGKILL where ranks are to end; as --grace", END,
         "own.patience", readers.count_or_zero, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, or 30"),
    _row("monitor-interval", "SECONDS", "accepted: mslaunch notices the end of a rank at once", END, "",
         own_readers.interval, "0.1"),
    _row("signals-to-handle", "LIST", "accepted if it is the default: other signals go to the ranks", END,
         "", own_readers.usual(SIGNALS), SIGNALS),
    _row("event-log-handler", "null", "accepted if it is null: mslaunch loads no handlers of torch", TELL, "",
         own_readers.usual("null"), "null"),
    Option(("version",), "", "print the version and exit", TELL, "", show_version),
    Option(("h", "help"), "[TOPIC]", "print the everyday options; what belongs to a topic; one option; or all", TELL,
           "", show_help),
    _refused("logs-specs", "it names Python code of an installed package; use --log-dir, --redirects and --tee"),
    _refused("numa-binding", "it binds ranks beside the GPU that torch would give them; use --bind-to numa, or socket"),
    _refused("duplicate-stdout-filters duplicate-stderr-filters",
             "logs have all lines; use --tee=3 --log-dir=DIR, and grep -h WORD DIR/*/attempt_0/*/stdout.log"),
    _refused("print-completion", "completions are those of mslaunch; use mslaunch --completion bash, zsh or fish"),
)  # fmt: skip

#: PET_NNODES and its like
VARIABLES: tuple[Variable, ...] = tuple(
    Variable(
        "PET_" + row.names[0].replace("-", "_").upper(),
        row.field,
        row.read if row.metavar else own_readers.flag,
        f"as --{row.names[0]}",
    )
    for row in TABLE
    if row.status != REFUSED and row.group != TELL and row.field
)
