"""Slurm: the nodes of a job, with its tasks as slots.

Slots are SLURM_TASKS_PER_NODE, as for Open MPI (ras_slurm_module.c) and hydra (slurm_query_node_list.c).  srun sets it
anew in a step, so a launch in a step (`srun -n1 --pty bash`) counts the cpus of the job instead, by
SLURM_CPUS_PER_TASK; the interactive step of salloc keeps it.  A heterogeneous job is one allocation of all components.

The launcher is on a node of the job in a batch script (SLURMD_NODENAME), and forks the agent there.  In a step it does
not, since the step may have fewer cpus than the job.  Under salloc it may be on any host.

When a job ends, by its time limit, scancel, preemption or a failed node, Slurm sends SIGCONT and SIGTERM to all
processes of its steps, our agents and ranks among them, and SIGKILL after KillWait (30 s by default; slurm.conf(5)).
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.errors import LaunchError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.resource_managers.managers import Grant, host_names
from mslaunch.resource_managers.node_lists import counts, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from mslaunch.resource_managers.managers import HostAccess

    _Item = TypeVar("_Item", str, int)

#: what tells of one task and its step, which in a rank would be those of an agent (cf. hydra's slurm_env.c): torch,
#: JAX, Lightning and singletons of Open MPI take them for a rank of theirs
SCRUB = (
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_STEP*", "SLURM_LAUNCH_*",
    "SLURM_SRUN_*", "SLURM_CPU_BIND*", "SLURM_MPI_TYPE", "SLURM_UMASK", "SLURM_EXTERNAL_LAUNCHER", "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_DISTRIBUTION", "SLURM_PMI*",
    "SLURM_EXPORT_ENV", "SRUN_DEBUG", "PMI_*", "PMIX_*",
)  # fmt: skip
#: what the step of the agents would have otherwise than the job; scripts find the first node by it
SHARED = (
    "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_CPUS_PER_TASK", "SLURM_THREADS_PER_CORE", "SLURM_HINT", "SLURM_GPUS", "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
)  # fmt: skip
_INTERACTIVE = "4294967290"  # SLURM_INTERACTIVE_STEP of slurm.h: LaunchParameters=use_interactive_step
_JOB = "start mslaunch in a batch script, or below salloc; --resource-manager none leaves the job"


class Component(NamedTuple):
    """A part of a heterogeneous job, or a whole job."""

    group: int  # of srun --het-group; -1: the job is not heterogeneous
    nodes: list[str]
    slots: list[int]


def grant(host: HostAccess) -> Grant | None:
    """The nodes of the job that the environment names."""
    environ = host.environ
    job = environ.get("SLURM_JOB_ID", "")
    if not job or not (environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_HET_SIZE")):
        return None  # left over: squeue and sacct take them as options
    title = _title(environ, job)
    in_step = _in_step(environ)
    started = environ.get("SLURM_STEP_NUM_TASKS", "1")
    if in_step and started != "1":
        what = f"srun has started mslaunch {started} times, as the tasks of a step of {title}"
        raise LaunchError(what, todo=f"{_JOB}; with a task a node, srun -n1 -N1 mslaunch … starts one")
    own = "" if in_step else environ.get("SLURMD_NODENAME", "")
    slots: dict[str, int] = {}
    for component in components(environ):
        for name, tasks in zip(component.nodes, component.slots):
            slots[name] = slots.get(name, 0) + tasks
    if not any(slots.values()):
        raise LaunchError(f"{title} has no slots", todo="ask for tasks, as with sbatch --ntasks-per-node=4")
    nodes = tuple(Node(name, tasks, title, local=name == own) for name, tasks in slots.items() if tasks)
    return Grant(Allocation(nodes, declared=True), title, "srun", SCRUB, SHARED)


def _in_step(environ: Mapping[str, str]) -> bool:
    """Whether the launcher is a task of a step which srun made for a command, and has variables of that."""
    return environ.get("SLURM_STEP_ID", _INTERACTIVE) != _INTERACTIVE


def _title(environ: Mapping[str, str], job: str) -> str:
    array, task = (environ.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK"))
    return f"Slurm's job {array}_{task}" if array and task else f"Slurm's job {job}"


def components(environ: Mapping[str, str]) -> list[Component]:
    """The components of the job that the environment names.  Raises LaunchError for what cannot be read."""
    groups = environ.get("SLURM_HET_SIZE", "")
    if not groups:
        return [_component(environ, -1)]
    if not (groups.isascii() and groups.isdigit() and 0 < int(groups) <= 1000):
        raise LaunchError(f"SLURM_HET_SIZE={groups!r} is not a number of components")
    return [_component(environ, group) for group in range(int(groups))]


def _component(environ: Mapping[str, str], group: int) -> Component:
    end = "" if group < 0 else f"_HET_GROUP_{group}"
    nodes = host_names(_read(expand, environ, f"SLURM_JOB_NODELIST{end}"), f"SLURM_JOB_NODELIST{end}")
    in_step = _in_step(environ)
    name = f"SLURM_JOB_CPUS_PER_NODE{end}" if in_step else f"SLURM_TASKS_PER_NODE{end}"
    slots = _read(counts, environ, name)
    if len(nodes) != len(slots):
        raise LaunchError(
            f"{name}={environ[name]} is for {counted(len(slots), 'node')}, and the job has {len(nodes)}", todo=_JOB
        )
    each = environ.get("SLURM_CPUS_PER_TASK", "1") if in_step else "1"
    share = int(each) if each.isascii() and each.isdigit() and 0 < len(each) < 7 else 1
    return Component(group, nodes, [cpus // max(1, share) for cpus in slots])


def _read(reader: Callable[[str], list[_Item]], environ: Mapping[str, str], name: str) -> list[_Item]:
    try:
        found = reader(environ.get(name, ""))
    except ValueError as error:
        raise LaunchError(f"{name}={environ.get(name, '')[:200]!r} cannot be read: {error}", todo=_JOB) from None
    if not found:
        raise LaunchError(f"{name} names no node", todo=_JOB)
    return found
