"""LSF: LSB_MCPU_HOSTS, which has hosts and numbers of slots in turn, or the file or the list that have a name a slot.

Sources: hydra's lsf_query_node_list.c; IBM, "Environment variables set for job execution".  Agents are started by
blaunch, as by hydra (`transport.batch_tasks`).  Where CSM_ALLOCATION_ID is set (CORAL
machines) the first host is a launch node, and jobs are started by jsrun alone.  LSF ends a job by SIGINT, SIGTERM and
SIGKILL to the processes of the script and of all tasks (JOB_TERMINATE_INTERVAL: 10 s apart).
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, counted_names, grant_of, lines_of, of_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.resource_managers.managers import Grant, HostAccess

#: what tells of one task of blaunch, and of jsrun's (Lightning takes these for a rank)
SCRUB = ("LSF_PM_*", "LS_JOBPID", "LSB_DJOB_TASKID", "JSM_*", "PMI_*", "PMIX_*")
#: of the job; ranks of hosts that SSH reaches would lack them
SHARED = (
    "LSB_JOBID", "LSB_JOBINDEX", "LSB_JOBNAME", "LSB_QUEUE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE",
    "LSB_DJOB_NUMPROC", "LS_SUBCWD",
)  # fmt: skip


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
    slots, name = _slots(environ, title, host)
    shared = (*SHARED, *of_script(environ, "LSB_", "LSF_", "LS_", *SCRUB))
    return grant_of(slots, title, name, host)._replace(transport="blaunch", scrub=SCRUB, shared=shared)


def _slots(environ: Mapping[str, str], title: str, host: HostAccess) -> tuple[dict[str, int], str]:
    """By host, and the variable that has them."""
    if environ.get("LSB_MCPU_HOSTS"):
        return _pairs(environ["LSB_MCPU_HOSTS"]), "LSB_MCPU_HOSTS"
    if environ.get("LSB_DJOB_HOSTFILE"):
        name = "LSB_DJOB_HOSTFILE"
        return counted_names(lines_of(environ[name], name, title, host), name), name
    if environ.get("LSB_HOSTS"):
        return counted_names(environ["LSB_HOSTS"].split(), "LSB_HOSTS"), "LSB_HOSTS"
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
