"""The contract of resource managers (Slurm, PBS, LSF and others), which grant hosts to a launch.

A resource manager is a function, named by a row of `MANAGERS` in `launcher/launch`; a row also has a variable that says
that a launch may run under the system.  Without `--resource-manager` all whose variable is set are asked.  Flux decides
alone, since a Flux instance runs inside of a job of another system; of the others only one may have granted hosts.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.errors import LaunchError, UsageError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, load
from mslaunch.plan.hosts.hostfile import is_host_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol

    class ResourceManager(Protocol):
        """One system; what a row of `MANAGERS` names."""

        def __call__(self, host: HostAccess) -> Grant | None:
            """What was granted to this launch; None if it does not run under this system.  Names are `host_names`.

            Raises `LaunchError` if it does, and the grant cannot be understood or used: a launch is never silently
            local.
            """


#: what each host of a job has of its own, or each user: directories, devices, and what a system says to a task
_OF_EACH_HOST = (
    "HOME", "USER", "LOGNAME", "SHELL", "MAIL", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_SESSION_ID",
    "DBUS_SESSION_BUS_ADDRESS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL", "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",
)  # fmt: skip
INNERMOST = "flux"  #: the system that runs inside of jobs of the others
OPTION = "--resource-manager"
LEAVE = f"name the hosts with {OPTION} none --hostfile FILE, or this host alone with {OPTION} none"


class HostAccess(NamedTuple):
    """All that a resource manager may look at."""

    environ: Mapping[str, str]
    read_text: Callable[[str], str]  # a file; raises OSError and UnicodeDecodeError
    run: Callable[[Sequence[str]], str]  # the standard output of a command; raises LaunchError
    is_local: Callable[[str], bool]  # whether a name means this host


class Grant(NamedTuple):
    """The hosts of a launch, and how agents get there."""

    allocation: Allocation  # slots included: no host has to be asked for them; `Node.local`: forked
    title: str  # the job in messages: "Slurm's job 17"
    transport: str = "ssh"  # starts agents on other hosts: a word of `transport_table`
    scrub: tuple[str, ...] = ()  # variables, and NAME* patterns, that mean something else in a rank than in an agent
    shared: tuple[str, ...] = ()  # of the job, for ranks on other hosts: the launcher's values of these, or NAME=value


def grant_of(slots: Mapping[str, int], title: str, source: str, host: HostAccess) -> Grant:
    """A grant of hosts by their slots, which SSH reaches; this host is recognized by its names.

    `source`: who says so.  Raises `LaunchError` if no host has slots.
    """
    nodes = tuple(Node(name, count, title, local=host.is_local(name)) for name, count in slots.items() if count)
    if not nodes:
        raise LaunchError(f"{title} has no slots: {source} names no host with any", todo=LEAVE)
    return Grant(Allocation(nodes, declared=True), title)


def of_script(environ: Mapping[str, str], *systems_own: str) -> tuple[str, ...]:
    """The variables of a batch script that ranks on other hosts get, whose tasks have those of the submission at most.

    mpirun gives them to its daemons (ompi 4.1 plm_tm_module.c, prrte plm_lsf_module.c), and srun does to its tasks.
    `systems_own`: beginnings of names that are left to the system.
    """
    kept = tuple(word.rstrip("*") for word in systems_own)
    return tuple(name for name in environ if name not in _OF_EACH_HOST and not name.startswith(kept))


def lines_of(path: str, name: str, title: str, host: HostAccess) -> list[str]:
    """The lines of a system's file that are not empty; `name` is its variable.  Raises `LaunchError`."""
    try:
        text = host.read_text(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise LaunchError(f"{name}={path}, the hosts of {title}, cannot be read: {why}", todo=LEAVE) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def counted_names(names: Iterable[str], source: str) -> dict[str, int]:
    """Names, repeated for each slot, in the order of first mention.  Raises `LaunchError` for what is no name."""
    slots: dict[str, int] = {}
    for name in host_names(names, source):
        slots[name] = slots.get(name, 0) + 1
    return slots


def host_names(names: Iterable[str], source: str) -> list[str]:
    """Names that a system says are those of hosts.  Raises `LaunchError` for what is none.

    They become words of ssh, srun and other commands, which would take `-oProxyCommand=…` for an option.
    """
    found = list(names)
    for name in found:
        if not is_host_name(name):
            raise LaunchError(f"{source}: {name[:60]!r} is not the name of a host", todo=LEAVE)
    return found


def detect(rows: Mapping[str, str], host: HostAccess, wanted: str = "") -> Grant | None:
    """The grant of the system that this launch runs under.

    `rows`: by the word of a system, its function; those that may be there.  With `wanted` it must be this one.  Raises
    `LaunchError`, also where two systems have granted hosts.
    """
    if INNERMOST in rows:
        rows = {INNERMOST: rows[INNERMOST], **rows}
    grants: dict[str, Grant] = {}
    for word, row in rows.items():
        manager: ResourceManager = load(row)
        grant = manager(host)
        if grant:
            host_names([node.name for node in grant.allocation.nodes], grant.title)
            grants[word] = grant
            if word == INNERMOST:
                break
    if wanted and not grants:
        raise UsageError(
            f"this launch does not run under {wanted}: its variables are not set",
            OPTION,
            "start mslaunch inside of a job of that system, or leave the option out",
        )
    if len(grants) > 1:
        titles = " and ".join(grant.title for grant in grants.values())
        choice = " or ".join(f"{OPTION} {word}" for word in grants)
        raise LaunchError(f"{counted(len(grants), 'system')} have granted hosts: {titles}", todo=f"choose: {choice}")
    return next(iter(grants.values()), None)


def run_command(environ: Mapping[str, str], argv: Sequence[str]) -> str:
    """For `HostAccess.run`; no longer than ten seconds.  The program is looked for in PATH of `environ`."""
    import subprocess

    from mslaunch.host.helper_programs import find_helper

    try:
        file = argv[0] if "/" in argv[0] else find_helper(argv[0], environ)
        if not file:
            raise FileNotFoundError(2, "No such file or directory", argv[0])
        done = subprocess.run(
            [file, *argv[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"the resource manager's {argv[0]} failed: {error}") from None
    return done.stdout
