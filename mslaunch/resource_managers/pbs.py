"""PBS (OpenPBS, PBS Pro, Torque) and Cobalt: a file with a line for each slot of a host.

The lines of a host may be apart; names are called as they are written there.  Torque repeats a host ppn times, OpenPBS
mpiprocs times.  Sources: ompi ras_tm_module.c (which asks for PBS_ENVIRONMENT and PBS_JOBID), hydra's
pbs_query_node_list.c and cobalt_query_node_list.c.  Where only PBS_JOBID is left of the variables, the file is looked
for where the daemon of the first host keeps it, and else `qstat -f` is asked how many hosts the job has.

Agents are tasks of the job, started by pbs_tmrsh, or with Torque by pbsdsh -h; those of Cobalt by SSH.  qdel, and the
end of the walltime, are SIGTERM to the session of the batch script, SIGKILL after kill_delay (10 s), and then SIGKILL
to the sessions of all tasks (openpbs src/resmom/catch_child.c); with the launcher all agents end their ranks.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, counted_names, grant_of, lines_of, of_script

if TYPE_CHECKING:
    from mslaunch.resource_managers.managers import Grant, HostAccess

#: what tells of one task, which in a rank would be that of an agent
SCRUB = ("PBS_TASKNUM", "PBS_NODENUM", "PBS_VNODENUM", "PMI_*", "PMIX_*")
#: of the job, which tasks on other hosts have not, or not all
SHARED = (
    "PBS_JOBID", "PBS_JOBNAME", "PBS_QUEUE", "PBS_O_WORKDIR", "PBS_O_HOST", "PBS_NODEFILE", "PBS_ARRAY_ID",
    "PBS_ARRAY_INDEX", "PBS_ARRAYID",
)  # fmt: skip
#: PBS_HOME/aux of OpenPBS and PBS Pro, and of Torque
_KEPT = ("/var/spool/pbs/aux/{}", "/var/spool/torque/aux/{}")


def pbs(host: HostAccess) -> Grant | None:
    """The hosts of PBS_NODEFILE."""
    job = host.environ.get("PBS_JOBID", "")
    if job and not ("PBS_NODEFILE" in host.environ or "PBS_ENVIRONMENT" in host.environ):
        path = _kept_file(job, host)
        if not path:
            _refuse_many(job, host)
            return None
        host = host._replace(environ={**host.environ, "PBS_NODEFILE": path})
    granted = _of_file("PBS", "PBS_JOBID", "PBS_NODEFILE", host)
    return granted and granted._replace(
        transport="tm", scrub=SCRUB, shared=(*SHARED, *of_script(host.environ, "PBS_", *SCRUB))
    )


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


def _kept_file(job: str, host: HostAccess) -> str:
    """The file of a job whose variables were dropped; "" if there is none on this host."""
    if not all(char.isalnum() or char in ".-_[]" for char in job):
        return ""
    for form in _KEPT:
        try:
            host.read_text(form.format(job))
        except (OSError, ValueError):
            continue
        return form.format(job)
    return ""


def _refuse_many(job: str, host: HostAccess) -> None:
    """PBS_JOBID alone may be left over from a job that has ended, or of another host; what qstat knows of it counts."""
    try:
        said = host.run(["qstat", "-f", job])
    except LaunchError:  # there is no such job, or no PBS
        return
    granted = ""
    for line in said.splitlines():
        if line.startswith("\t") and granted:
            granted += line.strip()  # a long value goes on, behind a tab
        elif granted:
            break
        elif line.strip().startswith("exec_host = "):
            granted = line.strip()[len("exec_host = ") :]
    hosts = {place.partition("/")[0].strip("()") for place in granted.split("+")} - {""}
    if len(hosts) > 1 and any(host.is_local(name) for name in hosts):
        what = f"PBS's job {job} has {counted(len(hosts), 'host')}, and PBS_NODEFILE is not set"
        raise LaunchError(what, todo=f"start mslaunch with the variables of the job; or {LEAVE}")
