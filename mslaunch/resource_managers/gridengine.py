"""Grid Engine: PE_HOSTFILE, with a line HOST SLOTS QUEUE PROCESSORS for each queue that slots come from.

A host in several queues has the sum (ompi ras_gridengine_module.c; sge_pe(5)).  Agents are started by SSH.  qdel sends
SIGKILL to the processes of the batch script, or SIGUSR2 ahead with -notify; without the launcher the agents end.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, counted_names, grant_of, lines_of

if TYPE_CHECKING:
    from mslaunch.resource_managers.managers import Grant, HostAccess


def grant(host: HostAccess) -> Grant | None:
    """The hosts of the parallel environment."""
    path, job = host.environ.get("PE_HOSTFILE", ""), host.environ.get("JOB_ID", "")
    if not (path and job):  # a job without a parallel environment has one slot, on this host
        return None
    title = f"Grid Engine's job {job}"
    slots: dict[str, int] = {}
    for line in lines_of(path, "PE_HOSTFILE", title, host):
        words = line.split()
        if len(words) < 2 or not (words[1].isascii() and words[1].isdigit() and len(words[1]) < 7):
            raise LaunchError(f"PE_HOSTFILE={path}: {line[:80]!r} is not HOST SLOTS QUEUE", todo=LEAVE)
        (name,) = counted_names(words[:1], "PE_HOSTFILE")
        slots[name] = slots.get(name, 0) + int(words[1])
    return grant_of(slots, title, "PE_HOSTFILE", host)
