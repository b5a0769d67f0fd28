"""The plans: jobmap -> one NodePlan a node, with every variable of every rank as a value.

Pure.  It knows which variables travel to which host, and asks `frameworks` for those of the contracts.  The
surprising thing is what does not travel: a remote rank inherits its own host's login environment, not the
launcher's, except OMPI_* and what -x names (as mpirun 4.1.4).
"""

from __future__ import annotations

from mslaunch import frameworks
from mslaunch.errors import UsageError
from mslaunch.frameworks import mindspore
from mslaunch.frameworks.place import Place
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import AppContext, AppPlan, JobMap, NodePlan, Placement, RankPlan, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

#: given to a rank that has no value of its own: output without a buffer (docs/design.md, "Live output")
DEFAULTS = ("PYTHONUNBUFFERED=1", "GFORTRAN_UNBUFFERED_PRECONNECTED=y", *mindspore.DEFAULTS)
#: scrubbed wherever they come from, besides those of the frameworks
_SCRUB = ("MSLAUNCH_*",)


def make_plans(
    request: Request, jobmap: JobMap, environ: Mapping[str, str], cwd: str, meeting: tuple[str, int, int], jobid: str
) -> list[NodePlan]:
    """One plan for each of `jobmap.nodes`; `meeting` is the address, the port and the service port of rank 0's host.

    Raises UsageError for a variable that cannot be passed on.
    """
    apps = [_app_plan(app, environ, cwd) for app in request.apps]
    return [_node_plan(request, jobmap, node, apps, environ, meeting, jobid) for node in range(len(jobmap.nodes))]


def _node_plan(
    request: Request,
    jobmap: JobMap,
    node: int,
    apps: list[AppPlan],
    environ: Mapping[str, str],
    meeting: tuple[str, int, int],
    jobid: str,
) -> NodePlan:
    here = [placement for placement in jobmap.placements if placement.node == node]
    places = [_place(jobmap, placement, len(here), meeting) for placement in here]
    first = jobmap.placements[0].node == node
    local = jobmap.nodes[node].local
    return NodePlan(
        ranks=tuple(
            RankPlan(placement.rank, placement.app, tuple(frameworks.rank_env(place)), placement.cpus)
            for placement, place in zip(here, places)
        ),
        apps=tuple(apps),
        env=(
            *(() if local else _forwarded(environ)),
            *(f"OMPI_MCA_{name}={value}" for name, value in request.mca),
            *frameworks.job_env(places[0]),
            f"MSLAUNCH_JOBID={jobid}",
        ),
        defaults=DEFAULTS,
        scrub=(*frameworks.SCRUB, *_SCRUB),
        services=(mindspore.service(places[0]),) if first else (),
        stdin=tuple(rank for rank in stdin_ranks(request, len(jobmap.placements)) if any(p.rank == rank for p in here)),
        merge=request.output.merge,
        pty=request.output.pty,
        grace=request.grace,
    )


def _place(jobmap: JobMap, placement: Placement, local_size: int, meeting: tuple[str, int, int]) -> Place:
    return Place(
        rank=placement.rank,
        size=len(jobmap.placements),
        local_rank=placement.local_rank,
        local_size=local_size,
        node=placement.node,
        nodes=len(jobmap.nodes),
        slots=max(jobmap.slots, len(jobmap.placements)),
        address=meeting[0],
        port=meeting[1],
        service_port=meeting[2],
    )


def _app_plan(app: AppContext, environ: Mapping[str, str], cwd: str) -> AppPlan:
    wdir = app.wdir or cwd
    if any("\0" in word for word in (*app.argv, wdir)):
        raise UsageError("no argument can hold a NUL character", app.argv[0].partition("\0")[0])
    return AppPlan(
        app.argv, wdir if wdir.startswith("/") else f"{cwd.rstrip('/')}/{wdir}", tuple(_exported(app, environ))
    )


def _exported(app: AppContext, environ: Mapping[str, str]) -> list[str]:
    """-x: the last one of a name wins; a wildcard takes what matches; a name without a value is passed over."""
    chosen: dict[str, str] = {}
    for name, value in app.env:
        if value is not None:
            chosen[name] = value
        elif "*" in name or "?" in name:
            from fnmatch import fnmatchcase

            chosen.update((found, environ[found]) for found in environ if fnmatchcase(found, name))
        elif name in environ:
            chosen[name] = environ[name]
    for name, value in chosen.items():
        if not name or "\0" in name + value:
            raise UsageError(
                f"{name}={value!r} cannot be a variable", "-x", "a name is needed, and no NUL in the value"
            )
    return [f"{name}={value}" for name, value in chosen.items()]


def missing_exports(request: Request, environ: Mapping[str, str]) -> list[str]:
    """The names given to -x that the launcher has no value for: worth a warning, as mpirun gives."""
    return [
        name
        for app in request.apps
        for name, value in app.env
        if value is None and name not in environ and "*" not in name and "?" not in name
    ]


def _forwarded(environ: Mapping[str, str]) -> list[str]:
    """OMPI_* of the launcher, without what a launch around us left there."""
    exact = {name for name in frameworks.SCRUB if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in frameworks.SCRUB if name.endswith("*"))
    return [
        f"{name}={value}"
        for name, value in environ.items()
        if name.startswith("OMPI_") and name not in exact and not name.startswith(prefixes)
    ]


def stdin_ranks(request: Request, size: int) -> tuple[int, ...]:
    """The ranks that get the launcher's standard input; raises UsageError for a rank that does not exist."""
    if request.stdin == "all":
        return tuple(range(size))
    if request.stdin == "none":
        return ()
    rank = int(request.stdin)
    if rank >= size:
        raise UsageError(f"there is no rank {rank} among {size}", "--stdin", "give a rank, all, or none")
    return (rank,)
