"""LSF: LSB_MCPU_HOSTS, which has hosts and numbers of slots in turn, or the file or the list that have a name a slot.

Sources: hydra's lsf_query_node_list.c; IBM, "Environment variables set for job execution".  Agents are started by SSH.
Where CSM_ALLOCATION_ID is set (CORAL machines) the first host is a launch node, and jobs are started by jsrun alone.
LSF ends a job by SIGINT, SIGTERM and SIGKILL to the processes of the script (JOB_TERMINATE_INTERVAL: 10 s apart).
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, counted_names, grant_of, lines_of

if TYPE_CHECKING:
    from mslaunch.resource_managers.managers import Grant, HostAccess


def grant(host: HostAccess) -> Grant | None:
    """The hosts of the job that the environment names."""
    environ = host.environ
    job = environ.get("LSB_JOBID", "")
    if not job:
        return None
    title = f"LSF's job {job}"
    if "CSM_ALLOCATION_ID" in environ:
        what = f"{title} is one of jsrun: mslaunch cannot start agents on its compute nodes"
        raise LaunchError(what, todo="start the program with jsrun")
    if environ.get("LSB_MCPU_HOSTS"):
        return grant_of(_pairs(environ["LSB_MCPU_HOSTS"]), title, "LSB_MCPU_HOSTS", host)
    if environ.get("LSB_DJOB_HOSTFILE"):
        name = "LSB_DJOB_HOSTFILE"
        return grant_of(counted_names(lines_of(environ[name], name, title, host), name), title, name, host)
    if environ.get("LSB_HOSTS"):
        return grant_of(counted_names(environ["LSB_HOSTS"].split(), "LSB_HOSTS"), title, "LSB_HOSTS", host)
    raise LaunchError(f"the hosts of {title} are not known: LSB_MCPU_HOSTS is not set", todo=LEAVE)


def _pairs(text: str) -> dict[str, int]:
    words = text.split()
    numbers = words[1::2]
    if len(words) % 2 or not all(word.isascii() and word.isdigit() and len(word) < 7 for word in numbers):
        raise LaunchError(f"LSB_MCPU_HOSTS={text[:200]!r} is not a list of hosts and numbers", todo=LEAVE)
    slots = dict.fromkeys(counted_names(words[::2], "LSB_MCPU_HOSTS"), 0)
    for name, number in zip(words[::2], numbers):
        slots[name] += int(number)
    return slots
