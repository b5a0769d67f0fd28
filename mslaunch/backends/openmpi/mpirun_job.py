"""A request as one job of Open MPI: the number of ranks, the host of rank 0, mpirun's command line and its plan.

No other host is contacted.  mpirun makes the map.  Where the result does not depend on the cores of other hosts, we map
the ranks as well, to count them, to find the host of rank 0, and to refuse what cannot be mapped.
"""

from __future__ import annotations

import os

from mslaunch.backends.openmpi.rank_wrapper import LocalPaths, framework_variables, wrap
from mslaunch.backends.openmpi.translate_options import HOSTFILE, MpirunOptions, translate
from mslaunch.datamodel.jobmap import Allocation, Endpoint, Node
from mslaunch.datamodel.node_plan import ANY_HOST, AppPlan, NodePlan, RankId, RankPlan, ServicePlan
from mslaunch.datamodel.request import Request, ServicePolicy
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks.contract import RankInfo
from mslaunch.frameworks.table import SCRUB
from mslaunch.frameworks.table import services as services_of
from mslaunch.plan.mapping.mapper import map_job, topology_decides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.backends.openmpi.find_mpirun import OpenMpiInstallation

_MPIRUN_ENDS = 2.0  # seconds that mpirun needs in addition to its ranks' grace


class MpirunJob(NamedTuple):
    """A job as far as it is known before there are ports and streams."""

    request: Request
    allocation: Allocation
    mpirun: OpenMpiInstallation
    size: int  # number of ranks
    first: Node  # of rank 0
    options: MpirunOptions
    cwd: str
    jobid: str
    here: bool  # whether ranks may be on this host
    elsewhere: bool  # whether ranks may be on other hosts

    @property
    def feeds(self) -> bool:
        """Whether a rank gets standard input from us and not from mpirun, which in version 5 may never close it."""
        return self.request.stdin != "none" and not self.elsewhere

    @property
    def readers(self) -> tuple[RankId, ...]:
        """The ranks of the agent's job that read standard input: mpirun, or none."""
        return () if self.feeds or self.request.stdin == "none" else (RankId(0),)

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL for mpirun itself, which in turn gives its ranks `request.grace`."""
        return self.request.grace * 2 + _MPIRUN_ENDS

    def endpoint(self, address: str, ports: Sequence[int], own_ports: tuple[int, ...] = ()) -> Endpoint:
        """Where ranks meet; `address` is one of this host that all reach, and all ports are free here.

        The scheduler runs on this host and starts when a rank of this host connects; without one there is none.
        """
        meet = address if self.first.local else self.first.name
        service_port = ports[1] if self.here else 0
        return Endpoint(meet, ports[0], service_port, address, (ANY_HOST,) * self.elsewhere, own_ports)

    def command_line(self, endpoint: Endpoint, local: LocalPaths, tagged: bool, hostfile: str) -> list[str]:
        """The command line of mpirun; `tagged`: it has to tag its output."""
        request, options = self.request, self.options
        line = [os.path.basename(self.mpirun.path), *["--tag-output"] * tagged, *options.job]
        for number, (app, own) in enumerate(zip(request.apps, options.programs)):
            line += [":"] * bool(number) + [hostfile if word == HOSTFILE else word for word in own]
            variables = framework_variables(endpoint, self.jobid, [name for name, _ in app.env])
            wdir = os.path.join(self.cwd, app.wdir or "").rstrip("/") or "/"
            merge, shift = request.output.merge, int(not self.here)
            prrte = self.mpirun.style == "5.0"
            line += wrap(self.size, app.argv, wdir, app.path or "", local, merge, shift, variables, prrte=prrte)
        return line

    def plan(self, line: Sequence[str], endpoint: Endpoint) -> NodePlan:
        """The plan of this host: mpirun as its only rank, and the scheduler as a service."""
        services: tuple[ServicePlan, ...] = ()
        if endpoint.service_port:
            info = RankInfo(0, self.size, 0, 1, 0, 1, 1, *endpoint[:3], service_address=endpoint.service_address)
            services = tuple(plan._replace(hosts=endpoint.hosts) for plan in services_of(info, ServicePolicy()))
        return NodePlan(
            ranks=(RankPlan(RankId(0), 0, ()),),
            apps=(AppPlan(tuple(line), self.cwd, path=os.path.dirname(self.mpirun.path), mpi="none"),),
            env=self.options.env,
            scrub=(*SCRUB, "MSLAUNCH_*"),
            services=services,
            stdin=self.readers,
            pty="no",
            grace=self.grace,
            term_to="group",
        )


def make_job(
    request: Request,
    allocation: Allocation,
    mpirun: OpenMpiInstallation,
    environ: Mapping[str, str],
    cwd: str,
    jobid: str,
) -> MpirunJob:
    """Raises `LaunchError` for what cannot be handed over."""
    counts, first = _count_ranks(request, allocation)
    crowded = not allocation.declared and sum(counts) > (allocation.nodes[0].slots or 1)
    options = translate(request, allocation, counts, mpirun, environ, not os.geteuid(), crowded)
    local = [node.local for node in allocation.nodes]
    here, elsewhere = any(local) and not request.policy.nolocal, not all(local)
    return MpirunJob(request, allocation, mpirun, sum(counts), first, options, cwd, jobid, here, elsewhere)


def _count_ranks(request: Request, allocation: Allocation) -> tuple[tuple[int, ...], Node]:
    """The ranks of each program, and the node of rank 0."""
    nodes = allocation.nodes
    if all(node.slots is not None for node in nodes) and not topology_decides(request.policy):
        jobmap = map_job(request, allocation, {})
        apps = [placement.app for placement in jobmap.placements]
        return tuple(map(apps.count, range(len(request.apps)))), jobmap.nodes[jobmap.placements[0].node]
    said = tuple(app.np for app in request.apps if app.np is not None)
    if len(said) < len(request.apps):
        todo = "say with -n how many ranks there are, or give each host slots=N"
        raise UsageError("how many ranks there are depends on the cores of other hosts", "--backend openmpi", todo)
    usable = [node for node in nodes if not (node.local and request.policy.nolocal)]
    return said, (usable or nodes)[0]
