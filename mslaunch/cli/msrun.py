"""The msrun dialect: the command line of MindSpore's launcher, for jobs that one command starts.

Options are those of msrun 2.10 (`msrun --help`, and by experiment): MindSpore's scheduler, its address and its port are
the agents' business here, so --master_addr and --master_port are taken and not needed.  Ranks print into
DIR/worker_N.log, as from msrun, and on the terminal with --join=True.  One msrun for each host (--node_rank) is not to
be had yet: this one starts all hosts, given -H or --hostfile.  What surprises is msrun's --join=False, its default:
msrun returns at once and leaves the job behind; here the command stays until the job has ended, and says so.
"""

from __future__ import annotations

from mslaunch.cli import options, readers
from mslaunch.cli.options import PASSED, REFUSED, Option, Show
from mslaunch.cli.readers import Expected
from mslaunch.errors import UsageError
from mslaunch.lean import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mslaunch.model import Policy, Request

    Setting = tuple[str, Any]  # path, value

RUN = "What to run"
HOSTS = "Hosts"
IO = "Output"
PLACE = "Placement"
TELL = "Information"
LATER = "Refused"

_PYTHONS = ("python", "python3", "pytest")  # first words that msrun leaves as they are
_WORKERS = 8  # --worker_num of msrun, where nobody says
_NOT_NEEDED = "accepted, and changes nothing: "


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Request:
    """The request that a command line (without the program name) makes.  Raises `UsageError`, or `Show`."""
    section = options.scan(options.Index(TABLE, extras), argv)
    if not section.program:
        raise UsageError(
            "no script was given", "", "write it after the options: msrun --worker_num=4 --join=True net.py"
        )
    job = options.settle(setting for setting in section.settings if setting[0].startswith("msrun."))
    kept = tuple(setting for setting in section.settings if not setting[0].startswith("msrun."))
    program = section.program if section.program[0] in _PYTHONS else ("python", *section.program)
    request = options.assemble(
        [("app.np", job.get("msrun.total", _WORKERS)), *_output(job)],
        [section._replace(settings=kept, program=program)],
    )
    notes = () if job.get("msrun.join") else ("msrun would return at once; mslaunch stays until the job has ended",)
    return _placed(request, job)._replace(notes=notes)


def extras() -> list[Option]:
    """The options of mslaunch that help here as well."""
    from mslaunch.cli.mpirun import extras

    return extras(EXTRAS)


def _output(job: Mapping[str, Any]) -> list[Setting]:
    """DIR/NAME_RANK.log for both streams of a rank, and the terminal with --join=True."""
    name = f"{job.get('msrun.name', 'worker')}_%r.log"
    path = f"{job['msrun.logs']}/{name}" if "msrun.logs" in job else name
    return [("output.outfile", path), ("output.merge", True), ("output.tee", job.get("msrun.join", False))]


def _placed(request: Request, job: Mapping[str, Any]) -> Request:
    """The request with its ranks on this host, or so many on each host that is named."""
    app = request.apps[0]
    total = app.np or _WORKERS
    local = job.get("msrun.local", total)
    if local > total:
        raise UsageError(
            f"{local} workers here are more than {total} in all", "--local_worker_num", "raise --worker_num"
        )
    policy = request.policy._replace(bind_to="none")
    if app.hosts or app.hostfile is not None or request.default_hostfile is not None:
        policy = policy._replace(map_by="ppr", ppr=((local, "node"),), oversubscribe=True)
    elif local < total:
        raise UsageError(
            "one msrun on each host is not to be had here",
            "--node_rank" if "msrun.node" in job else "--local_worker_num",
            f"start all hosts with one command: mslaunch --dialect msrun --worker_num={total} "
            f"--local_worker_num={local} -H node1,node2 SCRIPT, or --hostfile FILE",
        )
    return request._replace(policy=_bound(policy, local) if job.get("msrun.bound") else policy)


def _bound(policy: Policy, ranks: int) -> Policy:
    """--bind_core=True: an even share of the cpus for each rank; hosts are taken to be like this one."""
    from mslaunch.agent.cpus import cores_here

    share = max(1, cores_here() // ranks)
    return policy._replace(
        map_by=policy.map_by or "slot", bind_to="hwthread", pe=share, hwthread_cpus=True, overload=True
    )


def _version() -> None:
    from mslaunch import __version__

    raise Show(f"mslaunch {__version__}, in the dialect of msrun 2.10")


def _help() -> None:
    from mslaunch.cli import catalog

    raise Show(catalog.text("msrun"))


def _whole(word: str) -> int:
    """A whole number of any sign."""
    number = word[1:] if word[:1] == "-" else word
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise Expected("a whole number")
    return int(word)


def _truth(word: str) -> bool:
    """True or False, and what else says yes or no."""
    try:
        return readers.yes_no(word)
    except Expected:
        raise Expected("True or False") from None


def _address(word: str) -> list[Setting]:
    readers.text(word)
    return []


def _port(word: str) -> list[Setting]:
    if not 0 < readers.count(word) < 65536:
        raise Expected("a port from 1 to 65535")
    return []


def _directory(word: str) -> list[Setting]:
    return [("msrun.logs", word.replace("%", "%%"))] if word else []


def _log_name(word: str) -> list[Setting]:
    if "{ip}" in word:
        raise Expected("a name without {ip}", "use {hostname}: hosts have more than one address")
    return [("msrun.name", readers.text(word).replace("%", "%%").replace("{hostname}", "%h"))]


def _tail(word: str) -> list[Setting]:
    if word not in ("", "-1", "all"):
        raise Expected("-1, which is all", "leave it out, and follow one file: tail -f worker_0.log")
    return []


def _timeout(word: str) -> list[Setting]:
    return [("app.env+", (("MS_TOPO_TIMEOUT", str(_whole(word))),))]


def _table_file(word: str) -> list[Setting]:
    return [("app.env+", (("RANK_TABLE_FILE", word),))] if word else []


def _bind_core(word: str) -> list[Setting]:
    if word.lstrip()[:1] == "{":
        raise Expected("True or False", "for cpus of your own choice: a rankfile, mslaunch --rankfile FILE")
    return [("msrun.bound", _truth(word))]


def _bind_numa(word: str) -> list[Setting]:
    if word.lstrip()[:1] == "{" or _truth(word):
        raise Expected("False", "to bind ranks to NUMA nodes: mslaunch -n N --bind-to numa python SCRIPT")
    return []


EXAMPLES = (
    ("4 ranks on this host", "msrun --worker_num=4 --local_worker_num=4 --join=True --log_dir=logs net.py"),
    ("4 on each of two hosts", "msrun --worker_num=8 --local_worker_num=4 -H node01,node02 --join=True net.py"),
)
#: options of mslaunch itself, by the first of their names in the table of mpirun
EXTRAS = (
    "H", "hostfile", "x", "pty", "grace", "timeout", "rsh-agent", "ssh-accept-new", "connect-timeout", "agent-python",
    "fanout", "display-table", "display-allocation", "do-not-launch", "tag-output", "q", "v",
)  # fmt: skip

TABLE: tuple[Option, ...] = (
    Option(("worker_num",), "N", "number of ranks in all", RUN, "msrun.total", readers.count, "8"),
    Option(("local_worker_num",), "N", "ranks on each host", RUN, "msrun.local", readers.count, "--worker_num"),
    Option(("cluster_time_out",), "SECONDS", "how long ranks wait for each other, as MS_TOPO_TIMEOUT", RUN, "",
           _timeout, "600", PASSED),
    Option(("rank_table_file",), "FILE", "as RANK_TABLE_FILE, for the ranks", RUN, "", _table_file, status=PASSED),
    Option(("master_addr",), "HOST", _NOT_NEEDED + "the scheduler is on the host of rank 0", HOSTS, "", _address),
    Option(("master_port",), "PORT", _NOT_NEEDED + "a free port is found", HOSTS, "", _port),
    Option(("node_rank",), "N", "0, or -1: one command starts all hosts", HOSTS, "msrun.node", _whole, "-1"),
    Option(("log_dir",), "DIR", "where worker_N.log of each rank goes", IO, "", _directory, "the present directory"),
    Option(("worker_log_name",), "NAME", "NAME_N.log instead; {hostname} is the host of the rank", IO, "", _log_name,
           "worker"),
    Option(("tail_worker_log",), "-1", "with --join=True all ranks are shown as well", IO, "", _tail, "-1"),
    Option(("join",), "True|False", "True: show what ranks print; False: keep it in the files only. msrun returns at "
           "once with False, mslaunch never does", IO, "msrun.join", _truth, "False"),
    Option(("bind_core",), "True|False", "bind each rank to its share of the cpus", PLACE, "", _bind_core, "False"),
    Option(("bind_numa",), "False", "only False", PLACE, "", _bind_numa, "False"),
    Option(("n", "np"), "N", "it is a word of mpirun; use --worker_num N, or begin with --dialect mpirun", LATER,
           status=REFUSED),
    Option(("sim_level",), "N", "it starts no simulations; export MS_SIMULATION_LEVEL and run python itself", LATER,
           status=REFUSED),
    Option(("sim_rank_id",), "N", "it starts no simulations; export RANK_ID and run python itself", LATER,
           status=REFUSED),
    Option(("version",), "", "print the version and exit", TELL, "", _version),
    Option(("h", "help"), "", "print this and exit", TELL, "", _help),
)  # fmt: skip
