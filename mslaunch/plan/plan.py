"""The plans: jobmap -> one NodePlan a node, with every variable of every rank as a value.

Pure.  It knows which variables travel to which host, and asks `frameworks` for those of the contracts.  The
surprising thing is what does not travel: a remote rank inherits its own host's login environment, not the
launcher's, except OMPI_* and PMIX_* (as mpirun 4.1.4; hydra's dialect says otherwise) and what -x names.
"""

from __future__ import annotations

from mslaunch import frameworks
from mslaunch.errors import UsageError
from mslaunch.frameworks import mindspore
from mslaunch.frameworks.place import Place, Program
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import AppContext, AppPlan, JobMap, NodePlan, Placement, RankPlan, Request, World

if TYPE_CHECKING:
    from collections.abc import Mapping

#: given to a rank that has no value of its own: output without a buffer (docs/design.md, "Live output")
DEFAULTS = ("PYTHONUNBUFFERED=1", "GFORTRAN_UNBUFFERED_PRECONNECTED=y", *frameworks.DEFAULTS)
#: scrubbed wherever they come from, besides those of the frameworks
_SCRUB = ("MSLAUNCH_*",)
#: taken by no pattern: they describe the launcher's host and shell
_OF_THIS_HOST = {"PWD", "OLDPWD", "SHLVL", "_", "HOST", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE", "SSH_CONNECTION",
                 "SSH_CLIENT", "SSH_TTY"}  # fmt: skip


def make_plans(
    request: Request,
    jobmap: JobMap,
    environ: Mapping[str, str],
    cwd: str,
    meeting: tuple[str, int, int],
    jobid: str,
    world: World | None = None,
) -> list[NodePlan]:
    """One plan for each of `jobmap.nodes`; `meeting` is the address, the port and the service port of rank 0's host.

    `jobid` is a number in hexadecimal; `world` is one that MPI_Comm_spawn makes, by default that of the job.  Raises
    UsageError for a variable that cannot be passed on.
    """
    near = [_app_plan(request, index, environ, cwd) for index in range(len(request.apps))]
    far = [app._replace(env=(*_forwarded(asked, environ), *app.env)) for app, asked in zip(near, request.apps)]
    world = world or make_world(request, jobmap, jobid)
    plans = []
    for index, node in enumerate(jobmap.nodes):
        here = [placement for placement in jobmap.placements if placement.node == index]
        places = [_place(jobmap, placement, len(here), meeting, int(world.name), world.sizes) for placement in here]
        told = world._replace(here=index)
        plan = _node_plan(request, here, places, near if node.local else far, jobid, told)
        if request.output.xterm and "DISPLAY" in environ:  # unless the way there brought one along (ssh -X)
            plan = plan._replace(defaults=(*plan.defaults, f"DISPLAY={environ['DISPLAY']}"))
        plans.append(plan)
    return plans


def make_world(request: Request, jobmap: JobMap, jobid: str, number: int = 1) -> World:
    """The world of a map of `request`; `number` counts those of the job, from 1.

    Its name is made as Open MPI 4.1 makes a job's: 16 bits for the launch, 16 for the world.  Its library takes worlds
    with the same upper half for those of one launch.
    """
    ranks: list[list[int]] = [[] for _ in jobmap.nodes]
    for placement in jobmap.placements:
        ranks[placement.node].append(placement.rank)
    return World(
        name=str(int(jobid, 16) & 0xFFFF0000 | number),
        hosts=tuple(node.name for node in jobmap.nodes),
        ranks=tuple(map(tuple, ranks)),
        sizes=tuple(sum(placement.app == app for placement in jobmap.placements) for app in range(len(request.apps))),
        slots=jobmap.slots,
    )


def empty_plan(request: Request, world: World) -> NodePlan:
    """What a node is told of a world that has no rank there, so that it can tell its own ranks of it."""
    return NodePlan((), (), (), grace=request.grace, world=world._replace(here=-1))


def _node_plan(
    request: Request, here: list[Placement], places: list[Place], apps: list[AppPlan], jobid: str, world: World
) -> NodePlan:
    size = places[0].size
    readers = stdin_ranks(request, size)
    windows = xterm_ranks(request, size)
    return NodePlan(
        ranks=tuple(
            RankPlan(
                world.first + placement.rank,
                placement.app,
                tuple(frameworks.rank_env(place)),
                placement.cpus,
                _window(request, placement.rank) if placement.rank in windows else (),
            )
            for placement, place in zip(here, places)
        ),
        apps=tuple(apps),
        env=(*frameworks.job_env(places[0]), f"MSLAUNCH_JOBID={jobid}"),
        defaults=DEFAULTS,
        scrub=(*frameworks.SCRUB, *_SCRUB),
        # the port of a spawned world's scheduler would be the job's own
        services=(mindspore.service(places[0]),) if here[0].rank == 0 and not world.first else (),
        stdin=tuple(placement.rank for placement in here if placement.rank in readers),
        merge=request.output.merge,
        pty=request.output.pty,
        grace=request.grace,
        session=needs_session(request),
        index_argv=request.index_argv,
        world=world,
    )


def _place(
    jobmap: JobMap,
    placement: Placement,
    local_size: int,
    meeting: tuple[str, int, int],
    job: int,
    sizes: tuple[int, ...],
) -> Place:
    slots = jobmap.nodes[placement.node].slots
    return Place(
        rank=placement.rank,
        size=len(jobmap.placements),
        local_rank=placement.local_rank,
        local_size=local_size,
        node=placement.node,
        nodes=len(jobmap.nodes),
        slots=jobmap.slots,
        address=meeting[0],
        port=meeting[1],
        service_port=meeting[2],
        job=job,
        app=placement.app,
        sizes=sizes,
        bound=bool(placement.cpus),
        crowded=slots is not None and local_size > slots,
    )


def _app_plan(request: Request, index: int, environ: Mapping[str, str], cwd: str) -> AppPlan:
    app = request.apps[index]
    wdir = _absolute(app.wdir or cwd, cwd)
    if any("\0" in word for word in (*app.argv, wdir)):
        raise UsageError("no argument can hold a NUL character", app.argv[0].partition("\0")[0])
    argv = (f"./{app.argv[0].rpartition('/')[2]}", *app.argv[1:]) if app.preload_binary else app.argv
    return AppPlan(
        argv=argv,
        wdir=wdir,
        env=(
            *(f"OMPI_MCA_{name}={value}" for name, value in request.mca),
            *frameworks.app_env(Program(index, app.argv, wdir)),
            *_exported(app, environ),
        ),
        path=app.path or "",
        front=_front(_absolute(app.prefix, cwd)) if app.prefix else (),
        # -wdir is stronger than --set-cwd-to-session-dir, not than -s (mpirun 4.1.4)
        in_session=app.preload_binary or (app.session_dir and app.wdir is None),
        mpi=app.mpi,
    )


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"


def _front(prefix: str) -> tuple[str, ...]:
    folder = prefix.rstrip("/")
    return f"PATH={folder}/bin", f"LD_LIBRARY_PATH={folder}/lib"


def needs_session(request: Request) -> bool:
    """Must each rank have a session directory?"""
    return any(app.preload_binary or app.preload_files or app.session_dir for app in request.apps)


def _exported(app: AppContext, environ: Mapping[str, str]) -> list[str]:
    """-x: the last one of a name wins; a name without a value is passed over.

    A wildcard takes what matches, but for what belongs to the launcher's host or to a launch around us.
    """
    chosen: dict[str, str] = {}
    for name, value in app.env:
        if value is not None:
            chosen[name] = value
        elif "*" in name or "?" in name:
            chosen.update((found, environ[found]) for found in matching((name,), environ))
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


def _forwarded(app: AppContext, environ: Mapping[str, str]) -> list[str]:
    """Variables of the launcher for ranks on other hosts."""
    return [f"{name}={environ[name]}" for name in matching(app.forward, environ)]


def matching(patterns: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    """The names that patterns may take: not those of this host, nor what a launch around us left."""
    exact = {name for name in frameworks.SCRUB if not name.endswith("*")} | _OF_THIS_HOST
    prefixes = tuple(name[:-1] for name in (*frameworks.SCRUB, *_SCRUB) if name.endswith("*"))
    return [
        name
        for name in environ
        if name not in exact and not name.startswith(prefixes) and any(_matches(name, one) for one in patterns)
    ]


def _matches(name: str, pattern: str) -> bool:
    """As fnmatchcase, whose import costs a launch some milliseconds where the usual `PREFIX_*` needs none of it."""
    if not any(char in pattern[:-1] for char in "*?[") and pattern[-1:] not in ("?", "["):
        return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern)


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


def xterm_ranks(request: Request, size: int) -> tuple[int, ...]:
    """The ranks that run in windows of their own; raises UsageError for one that does not exist."""
    text = request.output.xterm
    if text is None:
        return ()
    ranks: list[int] = []
    for part in text.rstrip("!").split(","):
        if part.strip() == "-1":
            return tuple(range(size))
        first, dash, last = (word.strip() for word in part.partition("-"))
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise UsageError(f"{part!r} is no rank", "--xterm", "give ranks, as in 0,2-3, or -1 for all of them")
        if int(last) >= size:
            raise UsageError(f"there is no rank {last} among {size}", "--xterm", "ranks are counted from 0")
        ranks += range(int(first), int(last) + 1)
    return tuple(ranks)


def _window(request: Request, rank: int) -> tuple[str, ...]:
    """The words before the program, those of mpirun 4.1.4."""
    hold = ("-hold",) if (request.output.xterm or "").endswith("!") else ()
    return ("xterm", "-T", f"Rank {rank}", *hold, "-e")
