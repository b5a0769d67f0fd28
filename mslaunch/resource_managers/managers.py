"""The table of resource managers (Slurm, PBS, LSF and others), and their contract: they grant hosts to a launch."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple, load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from mslaunch.datamodel.jobmap import Allocation

    class ResourceManager(Protocol):
        """One system; what a row of `MANAGERS` names."""

        def __call__(self, host: HostAccess) -> Grant | None:
            """What was granted to this launch; None if it does not run under this system.

            Raises `LaunchError` if it does, and the grant cannot be understood.
            """


class HostAccess(NamedTuple):
    """All that a resource manager may look at."""

    environ: Mapping[str, str]
    read_text: Callable[[str], str]  # a file; raises OSError
    run: Callable[[Sequence[str]], str]  # the standard output of a command; raises LaunchError


class Grant(NamedTuple):
    """The hosts of a launch, how agents get there, and what outlives what."""

    allocation: Allocation
    transport: str = ""  # starts agents on other hosts (a word of `transport.openers`); "": that of the command line
    agents_outlive_opener: bool = True  # False: they end with the command that started them, as with srun
    hosts_outlive_launcher: bool = False  # they stay granted after its end; agents end by the loss of their links


#: word -> resource manager, in the order in which they are asked
MANAGERS: dict[str, str] = {}


def detect(host: HostAccess) -> Grant | None:
    """The grant of the first system that this launch runs under; None: the command line names the hosts."""
    for row in MANAGERS.values():
        manager: ResourceManager = load(row)
        grant = manager(host)
        if grant:
            return grant
    return None


def run_command(argv: Sequence[str]) -> str:
    """For `HostAccess.run`; no longer than ten seconds."""
    import subprocess

    from mslaunch.errors import LaunchError

    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"the resource manager's {argv[0]} failed: {error}") from None
    return done.stdout
