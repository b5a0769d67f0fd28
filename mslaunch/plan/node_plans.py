"""The plans of nodes: from the job map to one NodePlan a node, with every variable of every rank as a value.

Also which ranks read standard input, and which run in windows of their own (--xterm).  Where other launchers start
parts of the job, it is no mistake to name a rank that is not ours.

A remote rank inherits its own host's login environment, not the launcher's, except OMPI_* and PMIX_* (as with mpirun
4.1.4; hydra's dialect says otherwise) and what -x names.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.node_plan import (
    ANY_HOST,
    JOB_MARK,
    NODE_MARK,
    SERVICE_BASE,
    AppPlan,
    NodePlan,
    RankId,
    RankPlan,
    ServiceId,
    World,
)
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks import table as frameworks
from mslaunch.frameworks.contract import ProgramInfo
from mslaunch.plan.rank_variables import ATTEMPT, OWN, FrameworkVariables, defaults, exported, forwarded, of_job

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Endpoint, JobMap, Placement
    from mslaunch.datamodel.node_plan import ServicePlan
    from mslaunch.datamodel.request import Request
    from mslaunch.plan.device_shares import DeviceShares


def make_plans(
    request: Request,
    jobmap: JobMap,
    environ: Mapping[str, str],
    cwd: str,
    endpoint: Endpoint,
    jobid: str,
    world: World | None = None,
    attempt: int = 1,
    *,
    secret: str = "",
    devices: DeviceShares | None = None,
    unbound: Container[int] = (),
) -> list[NodePlan]:
    """One plan for each of `jobmap.nodes`, also for one without ranks.

    `jobid` is a number in hexadecimal, `secret` that of `make_world`; `world` is one that MPI_Comm_spawn makes, by
    default that of the job, with its services, unless these are started before (`service_plans`).  `devices` has the
    answers of all agents; None: nobody has asked.  `unbound` are the app contexts that are not bound because their
    programs have threads.  Raises UsageError for a variable that cannot be passed on.
    """
    own = world or make_world(request, jobmap, jobid, attempt=attempt, secret=secret)
    plans = _NodePlans(request, jobmap, environ, cwd, endpoint, jobid, attempt, own, devices=devices, unbound=unbound)
    services = () if world or first_services(request, jobmap) else plans.services()
    return [plans.of(node, services if node == plans.service else ()) for node in range(len(jobmap.nodes))]


def service_plans(
    request: Request,
    jobmap: JobMap,
    environ: Mapping[str, str],
    cwd: str,
    endpoint: Endpoint,
    jobid: str,
    attempt: int = 1,
    *,
    secret: str = "",
) -> dict[int, NodePlan]:
    """The services that are started before the ranks: for their node, by number, a plan without ranks."""
    if not first_services(request, jobmap):
        return {}
    world = make_world(request, jobmap, jobid, attempt=attempt, secret=secret)
    plans = _NodePlans(request, jobmap, environ, cwd, endpoint, jobid, attempt, world)
    return {plans.service: plans.of(plans.service, plans.services(), ranks=False)}


def first_services(request: Request, jobmap: JobMap) -> tuple[ServiceId, ...]:
    """The services that are started before the ranks.

    Where nobody asks for that, the first waits for the connection of a rank; but not on a host that has none, and not
    if there are others, which make certain that it is needed.
    """
    cluster, at = request.cluster, jobmap.service_node
    first = cluster.first or cluster.servers or all(placement.node != at for placement in jobmap.placements)
    count = 1 + cluster.servers if first and has_services(request) else 0
    return tuple(ServiceId(SERVICE_BASE - number) for number in range(count))


def has_services(request: Request) -> bool:
    """Whether there are services for us to start, should a rank want them."""
    cluster = request.cluster
    return not cluster.simulated and (cluster.share is None or cluster.share.master)


def make_world(
    request: Request, jobmap: JobMap, jobid: str, number: int = 1, attempt: int = 1, *, secret: str = ""
) -> World:
    """The world of a map of `request`; `number` counts those of the attempt, from 1.

    Its name is a number as Open MPI 4.1 has it (16 bits for the launch, 16 for the world; each attempt is a launch of
    its own, or a library might find what is left of the one before), and `secret`, which nobody can guess: libpmix
    takes whoever knows the name for a rank.  So the name must stand in no file name, argument or message.

    Open MPI 5 makes 16 bits of all that stands before an "@", and takes 15 more from the number behind it
    (`opal_pmix_convert_nspace` of 5.0.8).  Without the latter, one pair of worlds in 65,536 would be the same to it.
    """
    digits = str(int(jobid, 16) + (attempt - 1 << 16) & 0xFFFF0000 | number)
    used = [(node.name, rows) for node, rows in zip(jobmap.nodes, jobmap.by_node()) if rows]
    first = jobmap.first
    sizes = [0] * len(request.apps)
    for placement in jobmap.placements:
        sizes[placement.app] += 1
    return World(
        name=f"{digits}-{secret}@{number}" if secret else digits,
        first=first,
        hosts=tuple(name for name, _ in used),
        ranks=tuple(tuple([placement.rank - first for placement in rows]) for _, rows in used),
        sizes=tuple(sizes),
        slots=jobmap.slots,
    )


def empty_plan(request: Request, world: World) -> NodePlan:
    """The plan for a node that has no rank of this world, so that its own ranks can learn of it."""
    term_to = request.term_to or "rank"
    return NodePlan((), (), (), grace=request.grace, term_to=term_to, world=world._replace(here=-1))


class _NodePlans:
    """What the plans of one launch, or of one world, are made of; what they have alike is the same object in all."""

    def __init__(
        self,
        request: Request,
        jobmap: JobMap,
        environ: Mapping[str, str],
        cwd: str,
        endpoint: Endpoint,
        jobid: str,
        attempt: int,
        world: World,
        *,
        devices: DeviceShares | None = None,
        unbound: Container[int] = (),
    ) -> None:
        self._devices = devices
        self._unbound = unbound
        self._request = request
        self._jobmap = jobmap
        self._endpoint = endpoint
        self._world = world
        self._near = tuple(_app_plan(request, index, environ, cwd) for index in range(len(request.apps)))
        shared = of_job(request.shared, environ, request.scrub)
        self._far = tuple(
            app._replace(env=(*shared, *forwarded(asked, environ, request.scrub), *app.env))
            for app, asked in zip(self._near, request.apps)
        )
        self._on = jobmap.by_node()
        each = request.devices.each if devices else 0
        self._frameworks = FrameworkVariables(request, jobmap, endpoint, world, jobid, attempt, each)
        self._marks = f"{JOB_MARK}{jobid}", f"{ATTEMPT}={attempt}", f"{NODE_MARK}{jobid}@"
        self._readers = stdin_ranks(request, len(jobmap.placements), jobmap.first)
        self._windows = xterm_ranks(request, len(jobmap.placements), jobmap.first)
        self._plan = self._of_all(environ)
        self.service = jobmap.service_node

    def _of_all(self, environ: Mapping[str, str]) -> NodePlan:
        """What all nodes with ranks have alike."""
        request = self._request
        given = defaults(request, environ, len(self._jobmap.placements))
        if request.output.xterm and "DISPLAY" in environ:  # unless the way there brought one along (ssh -X)
            given += (f"DISPLAY={environ['DISPLAY']}",)
        return NodePlan(
            (),
            (),
            (),
            defaults=given,
            together=frameworks.TOGETHER,
            scrub=(*frameworks.SCRUB, *OWN, *request.scrub),
            merge=request.output.merge,
            pty=request.output.pty,
            grace=request.grace,
            term_to=request.term_to or "rank",
            session=any(app.preload_binary or app.preload_files or app.session_dir for app in request.apps),
            index_argv=request.index_argv,
            direct=direct_hosts(self._endpoint, self._world.hosts),
        )

    def of(self, node: int, services: tuple[ServicePlan, ...], ranks: bool = True) -> NodePlan:
        """The plan of a node; `ranks` False: with what its services need, and without its ranks."""
        request, jobmap = self._request, self._jobmap
        here = self._on[node] if ranks else []
        if not (here or services):
            return empty_plan(request, self._world)
        any_rank = here[0] if here else jobmap.placements[0]
        local_size = len(self._on[any_rank.node])
        rows = self._rank_plans(here)
        apps = self._near if jobmap.nodes[node].local else self._far
        if request.fill or request.local_rank_word:
            from mslaunch.plan.rank_patterns import filler, with_own_arguments

            macro, hosts = request.local_rank_word, self._world.hosts
            fill = filler(hosts) if request.fill else lambda word, at: word.replace(macro, str(at.local_rank))
            places = [self._frameworks.place(row, local_size) for row in here]
            rows, apps = with_own_arguments(fill, places, rows, apps)
        of_job, of_attempt, of_node = self._marks
        env = self._frameworks.of_node(any_rank, local_size)
        lone = len(here) == 1 and here[0].app in self._unbound
        return self._plan._replace(
            ranks=rows,
            apps=apps,
            env=(*env, of_job, of_attempt, of_node + jobmap.nodes[node].name),
            defaults=self._plan.defaults + frameworks.LONE * lone,
            services=services,
            stdin=tuple([RankId(row.rank) for row in here if row.rank in self._readers]) if self._readers else (),
            session=self._plan.session and bool(here),
            world=self._world._replace(here=self._frameworks.number[node] if here else -1),
        )

    def _rank_plans(self, here: Sequence[Placement]) -> tuple[RankPlan, ...]:
        shift, windows = self._world.first - self._jobmap.first, self._windows
        patterns = self._request.rank_variables
        made = []
        for row, words in zip(here, self._frameworks.of_ranks(here)):
            rank, app, node, local_rank, cpus, _, memory = row
            if self._devices:
                words.extend(self._devices.variables(node, local_rank, len(here)))
            if patterns:
                from mslaunch.plan.rank_patterns import filled

                words.extend(filled(patterns, self._frameworks.place(row, len(here))))
            window = _window(self._request, rank) if rank in windows else ()
            made.append(RankPlan._make((rank + shift, app, tuple(words), cpus, window, memory)))
        return tuple(made)

    def services(self) -> tuple[ServicePlan, ...]:
        """All services that there may be."""
        if not has_services(self._request):
            return ()
        cluster = self._request.cluster
        first = bool(first_services(self._request, self._jobmap))
        place = self._frameworks.place(self._jobmap.placements[0], 1)
        policy = cluster._replace(first=first, cpus=cluster.cpus or self._jobmap.service_cpus)
        return tuple(plan._replace(hosts=self._endpoint.hosts) for plan in frameworks.services(place, policy))


def _app_plan(request: Request, index: int, environ: Mapping[str, str], cwd: str) -> AppPlan:
    app = request.apps[index]
    wdir, prefix = os.path.join(cwd, app.wdir or cwd), os.path.join(cwd, app.prefix or "").rstrip("/")
    if any("\0" in word for word in (*app.argv, wdir)):
        raise UsageError("no argument can hold a NUL character", app.argv[0].partition("\0")[0])
    argv = (f"./{app.argv[0].rpartition('/')[2]}", *app.argv[1:]) if app.preload_binary else app.argv
    return AppPlan(
        argv=argv,
        wdir=wdir,
        env=(
            *(f"OMPI_MCA_{name}={value}" for name, value in request.mca),
            *frameworks.app_env(ProgramInfo(index, app.argv, wdir)),
            *exported(app, environ),
        ),
        path=app.path or "",
        front=(f"PATH={prefix}/bin", f"LD_LIBRARY_PATH={prefix}/lib") if app.prefix else (),
        # -wdir is stronger than --set-cwd-to-session-dir, not than -s (mpirun 4.1.4)
        in_session=app.preload_binary or (app.session_dir and app.wdir is None),
        mpi="none" if request.cluster.share else app.mpi,  # its ranks would wait for those of other launchers
    )


# --- ranks that the user has chosen by number


def stdin_ranks(request: Request, size: int, first: int = 0) -> Sequence[int]:
    """The ranks, of the `size` from `first` on, that get the launcher's standard input.

    Raises UsageError for a rank that does not exist.
    """
    if request.stdin == "all":
        return range(first, first + size)
    if request.stdin == "none":
        return ()
    rank, whole = int(request.stdin), _whole(request, size)
    if rank >= whole:
        raise UsageError(f"there is no rank {rank} among {whole}", "--stdin", "give a rank, all, or none")
    return (rank,) if first <= rank < first + size else ()


def _whole(request: Request, size: int) -> int:
    """How many ranks may be named, where `size` are ours."""
    share = request.cluster.share
    return share.size if share and share.first is not None else size


def xterm_ranks(request: Request, size: int, first: int = 0) -> Sequence[int]:
    """Those of them that run in windows of their own; raises UsageError for one that does not exist."""
    text, whole = request.output.xterm, _whole(request, size)
    if text is None:
        return ()
    from mslaunch.plan.number_ranges import bounds

    ranks: list[int] = []
    for part in text.rstrip("!").split(","):
        if part.strip() == "-1":
            return range(first, first + size)
        numbers = bounds(part)
        if not numbers:
            raise UsageError(f"{part!r} is no rank", "--xterm", "give ranks, as in 0,2-3, or -1 for all of them")
        if numbers[1] >= whole:
            raise UsageError(f"there is no rank {numbers[1]} among {whole}", "--xterm", "ranks are counted from 0")
        ranks += range(numbers[0], numbers[1] + 1)
    return tuple(ranks)


def _window(request: Request, rank: int) -> tuple[str, ...]:
    """The words before the program of a rank that runs in a window, those of mpirun 4.1.4."""
    hold = ("-hold",) if (request.output.xterm or "").endswith("!") else ()
    return ("xterm", "-T", f"Rank {rank}", *hold, "-e")


_THIS_HOST = ("localhost", "127.0.0.1", "::1")
_DIRECT = 1 << 14  # bytes of a variable that ranks can do with; the kernel's limit is 128 KiB


def direct_hosts(endpoint: Endpoint, names: Sequence[str]) -> tuple[str, ...]:
    """Hosts for `no_proxy` of ranks: where they meet, this host, and all others by `names` and addresses.

    Of a job with too many hosts only the first two.
    """
    known = dict.fromkeys((endpoint.address, endpoint.service_address, *_THIS_HOST, *names, *endpoint.hosts))
    hosts = tuple(host for host in known if host not in ("", ANY_HOST))
    few = hosts if sum(map(len, hosts)) + len(hosts) < _DIRECT else (endpoint.address, *_THIS_HOST)
    return tuple(dict.fromkeys(few))
