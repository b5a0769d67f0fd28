"""Systems whose hosts mslaunch cannot use by itself: a launch in a job of several hosts is refused, with what would do.

LoadLeveler (LOADL_HOSTFILE, hydra's ll_query_node_list.c) starts remote tasks by poe; OAR (OAR_NODEFILE, oarsub(1)) by
oarsh, which wraps ssh; HTCondor's parallel universe starts the batch script on each host (_CONDOR_NPROCS); PALS (aprun
and mpiexec of HPE) has started the launcher itself, as ranks of an application.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, OPTION, lines_of

if TYPE_CHECKING:
    from mslaunch.resource_managers.managers import HostAccess


def loadleveler(host: HostAccess) -> None:
    """A step of LoadLeveler."""
    if host.environ.get("LOADL_HOSTFILE"):
        _refuse_many("LoadLeveler", "LOADL_STEP_ID", "LOADL_HOSTFILE", "", host)


def oar(host: HostAccess) -> None:
    """A job of OAR."""
    if host.environ.get("OAR_NODEFILE"):
        _refuse_many("OAR", "OAR_JOB_ID", "OAR_NODEFILE", " --rsh-agent oarsh", host)


def condor(host: HostAccess) -> None:
    """A job of HTCondor's parallel universe."""
    count = host.environ.get("_CONDOR_NPROCS", "")
    if count not in ("", "0", "1"):
        what = f"HTCondor has started this script on {count} hosts, and mslaunch does not know their names"
        raise LaunchError(what, todo=f"start mslaunch where _CONDOR_PROCNO is 0; {LEAVE}")


def pals(host: HostAccess) -> None:
    """A rank of an application of PALS."""
    count = host.environ.get("PMI_SIZE", "1")
    if host.environ.get("PALS_RANKID") and count != "1":
        what = f"PALS has started mslaunch {count} times, as the ranks of an application"
        raise LaunchError(what, todo=f"start it in the batch script, without aprun or mpiexec; {LEAVE}")


def _refuse_many(system: str, job: str, name: str, agent: str, host: HostAccess) -> None:
    title = f"{system}'s job {host.environ.get(job, '')}".strip()
    hosts = dict.fromkeys(lines_of(host.environ[name], name, title, host))
    if len(hosts) > 1:
        what = f"{title} has {len(hosts)} hosts, and mslaunch cannot start agents there by {system}"
        raise LaunchError(what, todo=f"SSH may: mslaunch {OPTION} none{agent} --hostfile ${name} …")
