"""The options of the msrun dialect; help, docs/dialects.md and completion are made of the same rows.

They are those of msrun 2.10, which still has all older ones.  `MsrunOptions` has the fields that begin with `own.`.
"""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import PASSED, Option, show_help, show_version
from mslaunch.cli.parser.readers import Expected
from mslaunch.faststd import NamedTuple

RUN = "What to run"
HOSTS = "Hosts"
IO = "Output"
PLACE = "Placement"
TELL = "Information"


USAGE = "Usage: mslaunch --worker_num=N [options] script [arguments], or msrun [options] script [arguments]"
SYNTAX = (
    "Options end at the script, or at '--'. A name takes two dashes and may be shortened while it is clear; its value "
    "follows after a blank or '='. The script is run by python, unless it is called python, python3 or pytest."
)
EXAMPLES = (
    ("4 workers on this host", "msrun --worker_num=4 --local_worker_num=4 --join=True --log_dir=logs net.py"),
    ("4 on each of two hosts, by one command", "msrun --worker_num=8 -H node01,node02 --join=True net.py"),
    ("3 on one and 1 on another", "msrun --worker_num=4 -H node01:3,node02:1 --join=True net.py"),
    (
        "the same command on each host, with its own --node_rank",
        "msrun --worker_num=8 --local_worker_num=4 --master_addr=node01 --node_rank=0 --join=True net.py",
    ),
    (
        "all workers again from their checkpoints, should one fail",
        "msrun --worker_num=4 --restart group --join=True net.py",
    ),
)
#: the everyday options, as `DialectHelp.everyday` has them
SCREEN = (
    ("worker_num", ""),
    ("local_worker_num", "workers on this host, or on each named one"),
    ("H", "hosts of all workers, NAME[:WORKERS]"),
    ("hostfile", ""),
    ("master_addr", "host of the scheduler"),
    ("master_port", "port of the scheduler"),
    ("node_rank", "number of this host, where each has its own command"),
    ("log_dir", "where worker_N.log and scheduler.log go"),
    ("join", "show the output and wait, or return once workers run"),
    ("bind_core", "whether each worker gets cpus of its own"),
    ("restart", "what starts again when a worker fails"),
    ("timeout", ""),
)
#: options of mslaunch itself, by their first names in the table of mpirun
EXTRAS = (
    "H", "hostfile", "x", "pty", "grace", "term-to", "timeout", "warn", "rsh-agent", "ssh-accept-new",
    "resource-manager", "wait-hosts", "connect-timeout", "agent-python", "fanout", "heartbeat", "lease",
    "display-table", "display-allocation", "do-not-launch", "report-bindings", "tag-output", "timestamp-output", "fold",
    "devices-per-rank", "devices", "enable-recovery", "max-restarts", "restart", "restart-delay", "min-ranks",
    "record", "events", "on-event", "metrics", "progress",
    "max-restart-delay", "progress-file", "max-no-progress", "device-wait", "server_num", "scheduler-runs",
    "check", "json", "health-check", "health-check-timeout",
    "hang-timeout", "on-hang", "stacks-on", "color", "q", "v",
)  # fmt: skip

#: the help of -H, which means something else to mpirun
HOSTS_HELP = (
    "hosts of all workers, NAME[:WORKERS] with commas between; if none has a number they share "
    "the workers evenly; may be repeated"
)


class MsrunOptions(NamedTuple):
    """The options of msrun itself; None: not given."""

    total: int | None = None  # --worker_num
    local: int | None = None  # --local_worker_num
    patience: int | None = None  # --cluster_time_out, seconds
    table: str = ""  # --rank_table_file
    simulation: int | None = None  # --sim_level
    rank: int = -1  # --sim_rank_id; -1: all
    address: str | None = None  # --master_addr
    port: int | None = None  # --master_port
    node: int = -1  # --node_rank; -1: MindSpore numbers the workers
    logs: str = ""  # --log_dir, a pattern
    name: str = ""  # --worker_log_name, a pattern
    shown: tuple[int, ...] | None = None  # --tail_worker_log; None: all
    join: bool | None = None  # --join; None: not given
    core: bool | str = False  # --bind_core: yes, no, or JSON
    numa: bool | str = False  # --bind_numa: the same, or a file of JSON


def _workers_here(word: str) -> int:
    """--local_worker_num; to msrun 0 means the scheduler alone."""
    try:
        return readers.count(word)
    except Expected as error:
        zero = word and not word.strip("0")
        todo = "to have the scheduler on a host without workers: mslaunch -n N -H … --scheduler HOST python SCRIPT"
        raise Expected(error.what, todo if zero else "") from None


def _whole(word: str) -> int:
    number = word[1:] if word[:1] in ("-", "+") else word
    if not readers.is_number(number):
        raise Expected("a whole number")
    return int(word)


def _truth(word: str) -> bool:
    try:
        return readers.yes_no(word)
    except Expected:
        raise Expected("True or False") from None


def _address(word: str) -> str:
    word = word.strip()
    return readers.text(word[1:-1] if word[:1] == "[" and word[-1:] == "]" else word)


def _pattern(word: str) -> str:
    """A path or name as a pattern has it; {ip} and {hostname} in it are replaced later."""
    return word.replace("%", "%%")


def _tail(word: str) -> tuple[int, ...] | None:
    """Ranks with commas between; -1 or nothing means all of them."""
    if word.strip() in ("", "-1", "all"):
        return None
    numbers = [part.strip() for part in word.split(",")]
    if not all(map(readers.is_number, numbers)):
        raise Expected("numbers of workers with commas between, as 0,1, or -1 for all")
    return tuple(dict.fromkeys(map(int, numbers)))


def _level(word: str) -> int:
    """--sim_level: how far MindSpore goes in a dry run."""
    return int(readers.choice("0", "1", "2", "3")(word.strip()))


def _simulated_rank(word: str) -> int:
    """--sim_rank_id; -1: all that run here."""
    number = _whole(word)
    if number < -1:
        raise Expected("the number of a rank, or -1 for all that run here")
    return number


def _binding(word: str) -> str | bool:
    """True, False, or a text for `core_binding`: JSON, or for --bind_numa a file of it."""
    if word.strip().lower() in ("true", "false"):
        return word.strip().lower() == "true"
    return readers.text(word)


TABLE: tuple[Option, ...] = (
    Option(("worker_num",), "N", "total number of workers (ranks)", RUN, "own.total", readers.count,
           "8; --local_worker_num if only that is given"),
    Option(("local_worker_num",), "N", "workers on this host, or on each of those that -H or --hostfile name", RUN,
           "own.local", _workers_here,
           "as many as there are; on several hosts their slots, or even shares"),
    Option(("cluster_time_out",), "SECONDS", "how long workers and scheduler wait for each other, as MS_TOPO_TIMEOUT "
           "and MS_CLUSTER_TIMEOUT; negative: without limit", RUN, "own.patience", _whole, "600", PASSED),
    Option(("rank_table_file",), "FILE", "as RANK_TABLE_FILE, for the workers", RUN, "own.table", str,
           status=PASSED),
    Option(("sim_level",), "0|1|2|3", "MindSpore's dry run (MS_SIMULATION_LEVEL): the workers of this host, each by "
           "itself, and no scheduler", RUN, "own.simulation", _level, "MS_SIMULATION_LEVEL"),
    Option(("sim_rank_id",), "N", "in a dry run only one worker, as rank N", RUN, "own.rank",
           _simulated_rank, "RANK_ID, or all"),
    Option(("master_addr",), "HOST", "host of the scheduler: a name, or an address of IPv4 or IPv6; it is started "
           "here if that is this host", HOSTS, "own.address", _address,
           "127.0.0.1; with -H or --hostfile the first host"),
    Option(("master_port",), "PORT", "port of the scheduler; it is an error if it is in use", HOSTS, "own.port",
           readers.port, "8118, or the next below that is free if all workers are started here"),
    Option(("node_rank",), "N", "number of this host where each has a command of its own: its workers begin with N "
           "times --local_worker_num; -1: MindSpore numbers them", HOSTS, "own.node", _whole, "-1"),
    Option(("log_dir",), "DIR", "where worker_N.log of each worker and scheduler.log go; those of an earlier job are "
           "kept as FILE.1, FILE.2 …", IO, "own.logs", _pattern, "the present directory"),
    Option(("worker_log_name",), "NAME", "NAME_N.log instead; {hostname} and {ip} are those of the worker's host", IO,
           "own.name", _pattern, "worker"),
    Option(("tail_worker_log",), "RANKS", "with --join=True only these are shown, as 0,1; -1: all", IO, "own.shown",
           _tail, "-1"),
    Option(("join",), "True|False", "True: show what workers print and wait for the end; False: return once they run; "
           "mslaunch --status tells how they are, --stop JOB ends them", IO, "own.join", _truth,
           "False; True in a pod that an operator of Kubernetes has started"),
    Option(("bind_core",), "True|False|JSON", "bind each worker to an even share of the cpus of its host, or as JSON "
           "says: {\"scheduler\": [\"0\"], \"device0\": [\"1-3\", \"8,9\"]}", PLACE, "own.core", _binding,
           "False"),
    Option(("bind_numa",), "True|False|JSON|FILE", "take the memory of each worker from a NUMA node of its own, if "
           "there are enough, and run it there; or as JSON says: {\"device0\": [\"0\"]}, or a file with bind_config",
           PLACE, "own.numa", _binding, "False"),
    Option(("version",), "", "print the version and exit", TELL, "", show_version),
    Option(("h", "help"), "[TOPIC]", "print the everyday options; what belongs to a topic; one option; or all", TELL,
           "", show_help),
)  # fmt: skip
