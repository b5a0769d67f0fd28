"""PBS (OpenPBS, PBS Pro, Torque) and Cobalt: a file with a line for each slot of a host.

The lines of a host may be apart; names are called as they are written there.  Sources: ompi ras_tm_module.c (which asks
for PBS_ENVIRONMENT and PBS_JOBID), hydra's pbs_query_node_list.c and cobalt_query_node_list.c.  Agents are started by
SSH, as PRRTE does without pbs_tmrsh.  PBS ends a job by SIGTERM to the batch script's session, and SIGKILL after
kill_delay (10 s); with the launcher all agents end their ranks.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, counted_names, grant_of, lines_of

if TYPE_CHECKING:
    from mslaunch.resource_managers.managers import Grant, HostAccess


def pbs(host: HostAccess) -> Grant | None:
    """The hosts of PBS_NODEFILE."""
    if not ("PBS_NODEFILE" in host.environ or "PBS_ENVIRONMENT" in host.environ):
        return None
    return _of_file("PBS", "PBS_JOBID", "PBS_NODEFILE", host)


def cobalt(host: HostAccess) -> Grant | None:
    """The hosts of COBALT_NODEFILE."""
    return _of_file("Cobalt", "COBALT_JOBID", "COBALT_NODEFILE", host)


def _of_file(system: str, job: str, name: str, host: HostAccess) -> Grant | None:
    if not host.environ.get(job):
        return None
    title = f"{system}'s job {host.environ[job]}"
    path = host.environ.get(name, "")
    if not path:
        raise LaunchError(f"the hosts of {title} are not known: {name} is not set", todo=LEAVE)
    return grant_of(counted_names(lines_of(path, name, title, host), name), title, name, host)
