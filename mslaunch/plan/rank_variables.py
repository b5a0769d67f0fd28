"""Where variables of ranks come from: what -x names, what is forwarded to other hosts, defaults, and frameworks.

Of the user's, no pattern takes what describes the launcher's own host and shell, nor what a launch around this one has
left.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks import table as frameworks
from mslaunch.frameworks.contract import NODE, RANK, RankInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint, JobMap, Placement
    from mslaunch.datamodel.node_plan import World
    from mslaunch.datamodel.request import AppContext, Request, Share

    #: what variables of a rank depend on, but for numbers: local rank, ranks of its node, whether it is bound, whether
    #: the node has more ranks than slots, and the rank's cpus where they are told
    _Kind = tuple[int, int, bool, bool, tuple[int, ...]]

#: given to a rank that has no value of its own: output without a buffer (docs/design-decisions.md, "Live output")
DEFAULTS = ("PYTHONUNBUFFERED=1", "GFORTRAN_UNBUFFERED_PRECONNECTED=y")
#: scrubbed wherever they come from, besides those of the frameworks
OWN = ("MSLAUNCH_*",)
#: says which start of the job this is; it would lie if -x took it from a launch around us
ATTEMPT = "MSLAUNCH_ATTEMPT"
#: taken by no pattern: they describe the launcher's host and shell, or its container (mpi-operator empties NVIDIA_*)
_OF_THIS_HOST = {"PWD", "OLDPWD", "SHLVL", "_", "HOST", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE", "SSH_CONNECTION",
                 "SSH_CLIENT", "SSH_TTY", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
                 "K_MPI_JOB_ROLE"}  # fmt: skip


def exported(app: AppContext, environ: Mapping[str, str]) -> list[str]:
    """-x: the last one of a name wins; a name without a value is passed over.

    A wildcard takes what matches, but for what belongs to the launcher's host or to a launch around us.  Raises
    UsageError for what cannot be a variable.
    """
    chosen = _chosen(app, environ)
    for name, value in chosen.items():
        if not name or "\0" in name + value:
            raise UsageError(
                f"{name}={value!r} cannot be a variable", "-x", "a name is needed, and no NUL in the value"
            )
    return [f"{name}={value}" for name, value in chosen.items()]


def _chosen(app: AppContext, environ: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for name, value in app.env:
        if value is not None:
            chosen[name] = value
        elif "*" in name or "?" in name:
            chosen.update((found, environ[found]) for found in matching((name,), environ))
        elif name in environ:
            chosen[name] = environ[name]
    chosen.pop(ATTEMPT, None)
    return chosen


def missing_exports(request: Request, environ: Mapping[str, str]) -> list[str]:
    """The names given to -x that the launcher has no value for: worth a warning, as mpirun gives."""
    return [
        name
        for app in request.apps
        for name, value in app.env
        if value is None and name not in environ and "*" not in name and "?" not in name
    ]


def forwarded(app: AppContext, environ: Mapping[str, str], scrub: tuple[str, ...] = ()) -> list[str]:
    """Variables of the launcher for ranks on other hosts; those that frameworks name too, unless none is to travel.

    `scrub`: names and NAME* patterns that stay here.
    """
    patterns = (*app.forward, *frameworks.FORWARD) if app.forward else ()
    names = [name for name in matching(patterns, environ) if not any(_matches(name, one) for one in scrub)]
    return [f"{name}={environ[name]}" for name in names]


def of_job(shared: tuple[str, ...], environ: Mapping[str, str], scrub: tuple[str, ...]) -> list[str]:
    """Variables of a resource manager's job for ranks on other hosts: names, or NAME=value; see `forwarded`."""
    if not shared:
        return []
    given = {name: value for name, equals, value in (word.partition("=") for word in shared) if equals}
    asked = set(shared)
    names = [
        name
        for name in matching(("*",), environ)
        if name in asked and not any(_matches(name, pattern) for pattern in scrub)
    ]
    return [*(f"{name}={environ[name]}" for name in names), *(f"{name}={value}" for name, value in given.items())]


def matching(patterns: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    """The names that patterns may take: not those of this host, nor what a launch around us left."""
    exact = {name for name in frameworks.SCRUB if not name.endswith("*")} | _OF_THIS_HOST
    prefixes = tuple(name[:-1] for name in (*frameworks.SCRUB, *OWN) if name.endswith("*"))
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


def defaults(request: Request, environ: Mapping[str, str], size: int) -> tuple[str, ...]:
    """What the `size` ranks, and services, get where nothing else gave a value."""
    given = [*(_chosen(app, environ) for app in request.apps), environ]
    restarts = request.restart in ("rank", "group") or (request.max_restarts > 0 and not request.restart)
    return (*DEFAULTS, *frameworks.defaults(size, given, restarts))


# --- what frameworks say


class FrameworkVariables:
    """What frameworks say of the ranks of one world, and what they are told of each rank.

    They are asked once about all ranks that are alike but for the numbers of the rank and its node (`_Kind`), unless
    each rank has addresses of its own.
    """

    def __init__(
        self,
        request: Request,
        jobmap: JobMap,
        endpoint: Endpoint,
        world: World,
        jobid: str,
        attempt: int,
        devices: int,
    ) -> None:
        """`devices`: accelerators of each rank."""
        self._jobmap = jobmap
        self._share = request.cluster.share
        self._stores = endpoint.stores
        local = request.policy.local
        self._tells_cpus = bool(local and (local.even_cpus or local.even_numa))
        self._sizes = [len(rows) for rows in jobmap.by_node()]
        with_ranks = (node for node, count in enumerate(self._sizes) if count)
        self.number = {node: number for number, node in enumerate(with_ranks)}  #: node -> its number among these
        self._cross: dict[int, dict[int, int]] = {}  # local rank -> node -> its number among those that have one
        addresses: tuple[str, ...] = ()
        if endpoint.rank_ports:
            from mslaunch.plan.rank_addresses import rank_addresses

            addresses = rank_addresses(jobmap, endpoint.rank_ports)
        self._apart = bool(addresses or endpoint.stores)
        self._of_nodes: dict[_Kind, frameworks.Template] = {}
        self._of_ranks: dict[_Kind, frameworks.Template] = {}
        cluster = request.cluster
        self._common = RankInfo(
            *(RANK, len(jobmap.placements), 0, 0, NODE, len(self.number), jobmap.slots),
            *(endpoint.address, endpoint.port, endpoint.service_port),
            job=world.number,
            sizes=world.sizes,
            service_address=endpoint.service_address,
            servers=cluster.servers,
            simulated=cluster.simulated,
            own_ports=endpoint.own_ports,
            jobid=jobid,
            attempt=attempt,
            max_restarts=request.max_restarts,
            devices=devices,
            asked=request.env_for,
            rank_addresses=addresses,
        )

    def of_node(self, row: Placement, local_size: int) -> list[str]:
        """ "NAME=value" of all ranks of a node, which has so many; `row` is any of them."""
        if self._apart:
            return frameworks.job_env(self.place(row, local_size))
        kind = self._kind(row, local_size)
        if kind not in self._of_nodes:
            self._of_nodes[kind] = frameworks.job_template(self._place_of(kind))
        return self._of_nodes[kind].filled(row.rank, self.number[row.node])

    def of_ranks(self, rows: Sequence[Placement]) -> list[list[str]]:
        """ "NAME=value" of each rank of a node."""
        if self._apart:
            return [frameworks.rank_env(self.place(row, len(rows))) for row in rows]
        known, made = self._of_ranks, []
        for row in rows:
            kind = self._kind(row, len(rows))
            if kind not in known:
                known[kind] = frameworks.rank_template(self._place_of(kind))
            made.append(known[kind].filled(row.rank, self.number[row.node]))
        return made

    def place(self, row: Placement, local_size: int) -> RankInfo:
        """What frameworks are told of one rank, on a node with so many."""
        place = self._place_of(self._kind(row, local_size))
        node = self.number[row.node] if place.node is NODE else place.node
        return place._replace(rank=row.rank, node=node, **self._of_store(row))

    def _kind(self, row: Placement, local_size: int) -> _Kind:
        slots, cpus = self._jobmap.nodes[row.node].slots, row.cpus
        crowded = slots is not None and local_size > slots
        return row.local_rank, local_size, bool(cpus), crowded, cpus if self._tells_cpus else ()

    def _place_of(self, kind: _Kind) -> RankInfo:
        """What they are told of all ranks of a kind."""
        local_rank, local_size, bound, crowded, cpus = kind
        place = self._common._replace(
            local_rank=local_rank, local_size=local_size, bound=bound, crowded=crowded, even_cpus=cpus
        )
        return _shared(place, self._share) if self._share else place

    def _of_store(self, row: Placement) -> dict[str, Any]:
        """What only frameworks with a key store ask for."""
        store = self._stores.get(row.node)
        if store is None:
            return {}
        at = row.local_rank
        if at not in self._cross:
            nodes = [node for node, count in enumerate(self._sizes) if count > at]
            self._cross[at] = {node: number for number, node in enumerate(nodes)}
        numbers, host = self._cross[at], self._jobmap.nodes[row.node].name
        return {"store": store, "host": host, "cross_rank": numbers[row.node], "cross_size": len(numbers)}


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
