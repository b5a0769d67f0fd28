"""Flux: the hosts of the instance that the launcher runs in, and the cores that its brokers manage.

`flux getattr hostlist` has the hosts by broker rank, in Slurm's notation, and `flux resource list -s up -n -o {rlist}`
the cores of each rank that is up and not drained (flux-broker-attributes(7), flux-resource(1)).  PRRTE reads the same
from R.  An instance is that of `flux batch` or `flux alloc`.  A task of `flux run` runs in the instance around its job,
whose hosts are not those of the job: with one task the launch has this host, with several it is refused.

Agents are started by `flux exec` (`transport.batch_tasks`).  An instance that ends sends SIGTERM to its first program,
the script of the launcher, and SIGKILL later; its brokers kill what `flux exec` has started.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, grant_of, host_names
from mslaunch.resource_managers.node_lists import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.resource_managers.managers import Grant, HostAccess

_TITLE = "the Flux instance"
#: what tells of a job or a task; the variables that the broker takes from its initial program (flux-environment(7))
SCRUB = (
    "FLUX_JOB_ID", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES", "FLUX_JOB_TMPDIR", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID",
    "FLUX_KVS_NAMESPACE", "FLUX_PROXY_REMOTE", "FLUX_PMI_LIBRARY_PATH", "I_MPI_PMI_LIBRARY", "PMI_*", "PMIX_*",
)  # fmt: skip


def grant(host: HostAccess) -> Grant | None:
    """The hosts of the instance whose broker FLUX_URI names."""
    environ = host.environ
    if not environ.get("FLUX_URI"):
        return None
    if environ.get("FLUX_JOB_ID"):
        tasks = environ.get("FLUX_JOB_SIZE", "1")
        if tasks == "1":
            return None
        what = f"flux has started mslaunch {tasks} times, as the tasks of its job {environ['FLUX_JOB_ID']}"
        raise LaunchError(what, todo=f"start mslaunch in a script of flux batch, or below flux alloc; {LEAVE}")
    names = hosts(host.run)
    slots = dict.fromkeys(names, 0)
    for line in host.run(["flux", "resource", "list", "-s", "up", "-n", "-o", "{rlist}"]).splitlines():
        for rank, cores in _cores(line.strip()):
            if rank >= len(names):
                raise LaunchError(f"flux resource list: {line[:80]!r} is not of {_TITLE}", todo=LEAVE)
            slots[names[rank]] += cores
    return grant_of(slots, _TITLE, "flux resource list", host)._replace(transport="flux", scrub=SCRUB)


def hosts(run: Callable[[Sequence[str]], str]) -> list[str]:
    """The host of each broker, by its rank.  Raises `LaunchError`."""
    source = "flux getattr hostlist"
    return host_names(_expanded(run(source.split()), source), source)


def _cores(text: str) -> list[tuple[int, int]]:
    """Rank and number of cores of all ranks in `rank[0-2]/core[0-3],gpu0 rank3/core0`."""
    found = []
    for group in text.split():
        ranks, slash, kinds = group.partition("/")
        cores = sum(name.startswith("core") for name in _expanded(kinds, "flux resource list"))
        for rank in _expanded(ranks, "flux resource list"):
            number = rank[4:]
            if not (slash and rank.startswith("rank") and number.isascii() and number.isdigit() and len(number) < 9):
                raise LaunchError(f"flux resource list: {text[:80]!r} is not ranks and cores", todo=LEAVE)
            found.append((int(number), cores))
    return found


def _expanded(text: str, source: str) -> list[str]:
    try:
        return expand(text.strip())
    except ValueError as error:
        raise LaunchError(f"{source}: {text.strip()[:80]!r} cannot be read: {error}", todo=LEAVE) from None
