"""The contract of resource managers (Slurm, PBS, LSF and others), which grant hosts to a launch.

They are rows of `MANAGERS` in `launcher/launch`, by the variable that says that a launch runs under the system.  Hosts
that the command line names come first, as hydra's -hosts do: then no system is asked, and nothing of its grant is used.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """The hosts of a launch, and how agents get there."""

    allocation: Allocation  # slots included: no host has to be asked for them
    transport: str = ""  # starts agents on other hosts (a word of `transport_table`); "": that of the command line


def detect(rows: Iterable[str], host: HostAccess) -> Grant | None:
    """The grant of the first of these systems that this launch runs under."""
    managers: Iterable[ResourceManager] = map(load, rows)
    return next(filter(None, (manager(host) for manager in managers)), None)


def run_command(argv: Sequence[str]) -> str:
    """For `HostAccess.run`; no longer than ten seconds."""
    import subprocess

    from mslaunch.errors import LaunchError

    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"the resource manager's {argv[0]} failed: {error}") from None
    return done.stdout
