"""Grid Engine: PE_HOSTFILE, with a line HOST SLOTS QUEUE PROCESSORS for each queue that slots come from.

A host in several queues has the sum (ompi ras_gridengine_module.c; sge_pe(5)).  Agents are tasks of the job
(`transport.qrsh`).  A task has the environment that the job was submitted with, and what tells of the task: ranks on
all hosts get that of the launcher instead, but for what belongs to its host.

qdel, and the limit h_rt, are SIGKILL for the process groups of the script and of the tasks: the launcher, and the
guards of agents, which then end their ranks.  With `qsub -notify` they get SIGUSR2 ahead, and at the limit s_rt SIGUSR1
(queue_conf(5)).
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, counted_names, grant_of, lines_of, of_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.resource_managers.managers import Grant, HostAccess

#: of one task; hydra's sge_env.c names the variables that qrsh must not export
SCRUB = ("QRSH_*", "PMI_*", "PMIX_*")
#: of a host: its directories, and its part of the job
_OF_HOST = ("TMP", "TEMP", "QUEUE", "PE_HOSTFILE", "SGE_JOB_SPOOL_DIR", "PATH")
_NO_TASK = ("", "undefined")  # of an array


def grant(host: HostAccess) -> Grant | None:
    """The hosts of the parallel environment."""
    environ = host.environ
    path, job, task = (environ.get(name, "") for name in ("PE_HOSTFILE", "JOB_ID", "SGE_TASK_ID"))
    if not (path and job):  # a job without a parallel environment has one slot, on this host
        return None
    title = f"Grid Engine's job {job}" + (f".{task}" if task not in _NO_TASK else "")
    slots: dict[str, int] = {}
    for line in lines_of(path, "PE_HOSTFILE", title, host):
        words = line.split()
        if len(words) < 2 or not (words[1].isascii() and words[1].isdigit() and len(words[1]) < 7):
            raise LaunchError(f"PE_HOSTFILE={path}: {line[:80]!r} is not HOST SLOTS QUEUE", todo=LEAVE)
        (name,) = counted_names(words[:1], "PE_HOSTFILE")
        slots[name] = slots.get(name, 0) + int(words[1])
    found = grant_of(slots, title, "PE_HOSTFILE", host)
    return found._replace(transport="qrsh", scrub=SCRUB, shared=_shared(environ))


def _shared(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Of the launcher's variables, those that mean the same on all hosts.

    The directory of this host's part of the job stands first in PATH, and another user may have made it elsewhere.
    """
    names = tuple(name for name in of_script(environ, *SCRUB) if name not in _OF_HOST)
    own = [environ[name] for name in ("TMPDIR", "TMP") if environ.get(name)]
    path = [directory for directory in environ.get("PATH", "").split(":") if directory not in own]
    return (*names, f"PATH={':'.join(path)}") if "PATH" in environ else names
