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
from mslaunch.frameworks.contract import ProgramInfo, RankInfo
from mslaunch.plan.exported_variables import ATTEMPT, OWN, defaults, exported, forwarded, of_job

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint, JobMap, Placement
    from mslaunch.datamodel.node_plan import ServicePlan
    from mslaunch.datamodel.request import Request, Share
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
    plans = _NodePlans(request, jobmap, environ, cwd, endpoint, jobid, attempt, devices, unbound=unbound)
    services = () if world or first_services(request, jobmap) else plans.services()
    world = world or make_world(request, jobmap, jobid, attempt=attempt, secret=secret)
    return [plans.of(node, world, services if node == plans.service else ()) for node in range(len(jobmap.nodes))]


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
    plans = _NodePlans(request, jobmap, environ, cwd, endpoint, jobid, attempt)
    world = make_world(request, jobmap, jobid, attempt=attempt, secret=secret)
    return {plans.service: plans.of(plans.service, world, plans.services(), ranks=False)}


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
    """
    digits = str(int(jobid, 16) + (attempt - 1 << 16) & 0xFFFF0000 | number)
    used = [(node.name, rows) for node, rows in zip(jobmap.nodes, jobmap.by_node()) if rows]
    return World(
        name=f"{digits}-{secret}" if secret else digits,
        first=jobmap.first,
        hosts=tuple(name for name, _ in used),
        ranks=tuple(tuple(placement.rank - jobmap.first for placement in rows) for _, rows in used),
        sizes=tuple(sum(placement.app == app for placement in jobmap.placements) for app in range(len(request.apps))),
        slots=jobmap.slots,
    )


def empty_plan(request: Request, world: World) -> NodePlan:
    """The plan for a node that has no rank of this world, so that its own ranks can learn of it."""
    term_to = request.term_to or "rank"
    return NodePlan((), (), (), grace=request.grace, term_to=term_to, world=world._replace(here=-1))


class _NodePlans:
    """What the plans of one launch, or of one world, are made of."""

    def __init__(
        self,
        request: Request,
        jobmap: JobMap,
        environ: Mapping[str, str],
        cwd: str,
        endpoint: Endpoint,
        jobid: str,
        attempt: int,
        devices: DeviceShares | None = None,
        *,
        unbound: Container[int] = (),
    ) -> None:
        self._devices = devices
        self._unbound = unbound
        self._request = request
        self._jobmap = jobmap
        self._endpoint = endpoint
        self._jobid = jobid
        self._attempt = attempt
        self._own = (f"{JOB_MARK}{jobid}", f"{ATTEMPT}={attempt}")
        self._near = tuple(_app_plan(request, index, environ, cwd) for index in range(len(request.apps)))
        shared = of_job(request.shared, environ, request.scrub)
        self._far = tuple(
            app._replace(env=(*shared, *forwarded(asked, environ, request.scrub), *app.env))
            for app, asked in zip(self._near, request.apps)
        )
        self._defaults = defaults(request, environ, len(jobmap.placements))
        if request.output.xterm and "DISPLAY" in environ:  # unless the way there brought one along (ssh -X)
            self._defaults += (f"DISPLAY={environ['DISPLAY']}",)
        self._on = jobmap.by_node()
        with_ranks = (node for node, rows in enumerate(self._on) if rows)
        self._number = {node: number for number, node in enumerate(with_ranks)}
        self._names = [jobmap.nodes[node].name for node in self._number]
        self._direct = direct_hosts(endpoint, self._names)
        self._cross: dict[int, dict[int, int]] = {}  # local rank -> node -> its number among those that have one
        self._alike: tuple[str, RankInfo] | None = None  # a world, and what its ranks have in common
        self._addresses: tuple[str, ...] = ()
        if endpoint.rank_ports:
            from mslaunch.plan.rank_addresses import rank_addresses

            self._addresses = rank_addresses(jobmap, endpoint.rank_ports)
        self._readers = stdin_ranks(request, len(jobmap.placements), jobmap.first)
        self._windows = xterm_ranks(request, len(jobmap.placements), jobmap.first)
        self.service = jobmap.service_node

    def of(self, node: int, world: World, services: tuple[ServicePlan, ...], ranks: bool = True) -> NodePlan:
        """The plan of a node; `ranks` False: with what its services need, and without its ranks."""
        request, jobmap = self._request, self._jobmap
        here = self._on[node] if ranks else []
        if not (here or services):
            return empty_plan(request, world)
        any_rank = here[0] if here else jobmap.placements[0]
        local_size = len(self._on[any_rank.node])
        rows = tuple(self._rank_plan(placement, local_size, world) for placement in here)
        apps = self._near if jobmap.nodes[node].local else self._far
        if request.fill or request.local_rank_word:
            from mslaunch.plan.rank_patterns import filler, with_own_arguments

            macro = request.local_rank_word
            fill = filler(self._names) if request.fill else lambda word, at: word.replace(macro, str(at.local_rank))
            places = [self._place(placement, local_size, world) for placement in here]
            rows, apps = with_own_arguments(fill, places, rows, apps)
        return NodePlan(
            ranks=rows,
            apps=apps,
            env=(*frameworks.job_env(self._place(any_rank, local_size, world)), *self._own, self._mark(node)),
            defaults=self._defaults + frameworks.LONE * (len(here) == 1 and here[0].app in self._unbound),
            together=frameworks.TOGETHER,
            scrub=(*frameworks.SCRUB, *OWN, *request.scrub),
            services=services,
            stdin=tuple(RankId(placement.rank) for placement in here if placement.rank in self._readers),
            merge=request.output.merge,
            pty=request.output.pty,
            grace=request.grace,
            term_to=request.term_to or "rank",
            session=bool(here)
            and any(app.preload_binary or app.preload_files or app.session_dir for app in request.apps),
            index_argv=request.index_argv,
            world=world._replace(here=self._number[node] if here else -1),
            direct=self._direct,
        )

    def _mark(self, node: int) -> str:
        return f"{NODE_MARK}{self._jobid}@{self._jobmap.nodes[node].name}"

    def _rank_plan(self, placement: Placement, local_size: int, world: World) -> RankPlan:
        place = self._place(placement, local_size, world)
        env = tuple(frameworks.rank_env(place))
        if self._devices:
            env += tuple(self._devices.variables(placement.node, placement.local_rank, local_size))
        if self._request.rank_variables:
            from mslaunch.plan.rank_patterns import filled

            env += filled(self._request.rank_variables, place)
        return RankPlan(
            RankId(placement.rank + world.first - self._jobmap.first),
            placement.app,
            env,
            placement.cpus,
            _window(self._request, placement.rank) if placement.rank in self._windows else (),
            placement.memory,
        )

    def services(self) -> tuple[ServicePlan, ...]:
        """All services that there may be."""
        if not has_services(self._request):
            return ()
        cluster = self._request.cluster
        first = bool(first_services(self._request, self._jobmap))
        place = self._place(self._jobmap.placements[0], 1, World())
        policy = cluster._replace(first=first, cpus=cluster.cpus or self._jobmap.service_cpus)
        return tuple(plan._replace(hosts=self._endpoint.hosts) for plan in frameworks.services(place, policy))

    def _place(self, placement: Placement, local_size: int, world: World) -> RankInfo:
        slots, local = self._jobmap.nodes[placement.node].slots, self._request.policy.local
        if self._alike is None or self._alike[0] != world.name:
            self._alike = world.name, self._in_job(world)
        place = self._alike[1]._replace(
            rank=placement.rank,
            local_rank=placement.local_rank,
            local_size=local_size,
            node=self._number[placement.node],
            bound=bool(placement.cpus),
            crowded=slots is not None and local_size > slots,
            even_cpus=placement.cpus if local and (local.even_cpus or local.even_numa) else (),
            **self._of_store(placement),
        )
        share = self._request.cluster.share
        return _shared(place, share) if share else place

    def _in_job(self, world: World) -> RankInfo:
        """What all ranks of a world have in common; the rest is that of none of them."""
        jobmap, endpoint, cluster = self._jobmap, self._endpoint, self._request.cluster
        return RankInfo(
            *(0, len(jobmap.placements), 0, 0, 0, len(self._number), jobmap.slots),
            *(endpoint.address, endpoint.port, endpoint.service_port),
            job=world.number,
            sizes=world.sizes,
            service_address=endpoint.service_address,
            servers=cluster.servers,
            simulated=cluster.simulated,
            own_ports=endpoint.own_ports,
            jobid=self._jobid,
            attempt=self._attempt,
            max_restarts=self._request.max_restarts,
            devices=self._request.devices.each if self._devices else 0,
            asked=self._request.env_for,
            rank_addresses=self._addresses,
        )

    def _of_store(self, placement: Placement) -> dict[str, Any]:
        """What only frameworks with a key store ask for."""
        store = self._endpoint.stores.get(placement.node)
        if store is None:
            return {}
        at = placement.local_rank
        if at not in self._cross:
            nodes = [node for node, rows in enumerate(self._on) if len(rows) > at]
            self._cross[at] = {node: number for number, node in enumerate(nodes)}
        numbers, host = self._cross[at], self._jobmap.nodes[placement.node].name
        return {"store": store, "host": host, "cross_rank": numbers[placement.node], "cross_size": len(numbers)}


def _shared(place: RankInfo, share: Share) -> RankInfo:
    """The same in a job of which we start a part; nodes are numbered as if all had as many ranks (msrun)."""
    return place._replace(
        size=share.size,
        sizes=(share.size,),
        slots=share.size,
        node=share.node if share.nodes else (share.first or 0) // place.local_size,
        nodes=share.nodes or -(-share.size // place.local_size),
        role=share.role,
        numbered=share.first is not None,
    )


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


def stdin_ranks(request: Request, size: int, first: int = 0) -> tuple[int, ...]:
    """The ranks, of the `size` from `first` on, that get the launcher's standard input.

    Raises UsageError for a rank that does not exist.
    """
    if request.stdin == "all":
        return tuple(range(first, first + size))
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


def xterm_ranks(request: Request, size: int, first: int = 0) -> tuple[int, ...]:
    """Those of them that run in windows of their own; raises UsageError for one that does not exist."""
    text, whole = request.output.xterm, _whole(request, size)
    if text is None:
        return ()
    from mslaunch.plan.number_ranges import bounds

    ranks: list[int] = []
    for part in text.rstrip("!").split(","):
        if part.strip() == "-1":
            return tuple(range(first, first + size))
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
