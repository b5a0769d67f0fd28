"""Slurm: the nodes of a job, or of the step that the launcher itself runs in.

Slots are SLURM_TASKS_PER_NODE, as for Open MPI and PRRTE (ras_slurm_module.c).  In a batch script the launcher is on a
node of the job, SLURMD_NODENAME, and forks the agent there; under salloc it may be on any host.  With the end of the
job, by its time limit, scancel or the failure of a node, Slurm sends SIGTERM to all processes of its steps, and after
KillWait SIGKILL, our agents and their ranks included.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import Grant
from mslaunch.resource_managers.node_lists import counts, expand

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from mslaunch.resource_managers.managers import HostAccess

    _Item = TypeVar("_Item", str, int)

#: what srun says of one task, its place and its step, which for ranks are those of an agent
SCRUB = (
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_STEP*", "SLURM_LAUNCH_*",
    "SLURM_SRUN_*", "SLURM_CPU_BIND*", "SLURM_MPI_TYPE", "SLURM_UMASK", "SLURM_EXTERNAL_LAUNCHER", "SLURM_NTASKS",
    "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_DISTRIBUTION", "SLURM_PMI*", "PMI_*", "PMIX_*",
)  # fmt: skip


def grant(host: HostAccess) -> Grant | None:
    """The nodes of the job that the environment names."""
    environ = host.environ
    job = environ.get("SLURM_JOB_ID", "")
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not job or not listed:
        return None
    title = f"Slurm's job {job}"
    names = _read(expand, listed, "SLURM_JOB_NODELIST", title)
    tasks = _read(counts, environ.get("SLURM_TASKS_PER_NODE", ""), "SLURM_TASKS_PER_NODE", title)
    if len(names) != len(tasks):
        raise LaunchError(f"{title} has {len(names)} nodes, and SLURM_TASKS_PER_NODE={environ['SLURM_TASKS_PER_NODE']}")
    own = environ.get("SLURMD_NODENAME", "")
    nodes = tuple(Node(name, slots, title, local=name == own) for name, slots in zip(names, tasks))
    return Grant(Allocation(nodes, declared=True), title, "srun", SCRUB)


def _read(reader: Callable[[str], list[_Item]], text: str, name: str, title: str) -> list[_Item]:
    try:
        return reader(text)
    except ValueError as error:
        raise LaunchError(f"{name}={text!r} of {title} cannot be read: {error}") from None
