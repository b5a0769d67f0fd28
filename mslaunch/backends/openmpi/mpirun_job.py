"""One job for Open MPI: how many ranks, where rank 0 is, and the words and plan that mpirun gets.

It asks no other host anything, so what depends on the cores of others is not known here, and must be said by the user.
Nothing is started.  The surprising thing is that the map is made after all, where that is possible: it is Open MPI's to
make, but ours tells the number of ranks, the host of rank 0, and refuses in our words what cannot be.
"""

from __future__ import annotations

import os

from mslaunch.backends.openmpi.rank_wrapper import MeetingPoint, Streams, command, variables
from mslaunch.backends.openmpi.translate_options import HOSTFILE, MpirunCommand, exported, translate
from mslaunch.datamodel.hosts import Allocation, Node
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, ServicePlan
from mslaunch.datamodel.request import Request, ServicePolicy
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks import mindspore
from mslaunch.frameworks.contract import RankInfo
from mslaunch.frameworks.table import SCRUB
from mslaunch.plan.exported_variables import matching
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.policy_defaults import topology_decides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.backends.openmpi.find_mpirun import OpenMpiInstallation

OWN_END = 2.0  #: seconds that mpirun needs beyond what it gives its ranks


class MpirunJob(NamedTuple):
    """What does not change once the request is understood."""

    request: Request
    allocation: Allocation
    mpirun: OpenMpiInstallation
    counts: tuple[int, ...]  # ranks of each program
    first: Node  # of rank 0
    words: MpirunCommand
    cwd: str
    jobid: str

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(self.counts)

    @property
    def elsewhere(self) -> bool:
        """Whether ranks may be on other hosts."""
        return any(not node.local for node in self.allocation.nodes)

    @property
    def here(self) -> bool:
        """Whether ranks may be on this host."""
        return any(node.local for node in self.allocation.nodes) and not self.request.policy.nolocal

    @property
    def feeds(self) -> bool:
        """Whether we give standard input to a rank ourselves: mpirun 5 may never tell it of the end."""
        return self.request.stdin != "none" and not self.elsewhere

    @property
    def readers(self) -> tuple[int, ...]:
        """Of the agent's ranks, that is of mpirun: whether it reads our standard input."""
        return () if self.feeds or self.request.stdin == "none" else (0,)

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL for mpirun itself, which gives its ranks theirs."""
        return self.request.grace * 2 + OWN_END

    def meeting(self, address: str, ports: Sequence[int]) -> MeetingPoint:
        """`address` is this host's, where all reach it; `ports` are free here.

        The scheduler is started on this host, by a rank that knocks here: it needs one.
        """
        scheduler = (address, ports[1]) if self.here else None
        return MeetingPoint(address if self.first.local else self.first.name, ports[0], scheduler)

    def line(self, meeting: MeetingPoint, streams: Streams, tagged: bool, hostfile: str) -> list[str]:
        """The command line of mpirun; `tagged`: it says whose output it is."""
        request = self.request
        line = [os.path.basename(self.mpirun.path), *["--tag-output"] * tagged, *self.words.job]
        for number, (app, own) in enumerate(zip(request.apps, self.words.programs)):
            line += [":"] * bool(number) + [hostfile if word == HOSTFILE else word for word in own]
            given = variables(meeting, self.jobid, [name for name, _ in app.env])
            wdir = os.path.join(self.cwd, app.wdir or "").rstrip("/") or "/"
            shift = 0 if self.here else 1
            line += command(app.argv, wdir, app.path or "", streams, request.output.merge, shift, given)
        return line

    def plan(self, line: Sequence[str], meeting: MeetingPoint) -> NodePlan:
        """mpirun, as the one rank of this host; the scheduler beside it."""
        services: tuple[ServicePlan, ...] = ()
        if meeting.scheduler:
            address, port = meeting.scheduler
            place = RankInfo(0, self.size, 0, 1, 0, 1, 1, address, meeting.port, port)
            services = mindspore.services(place, ServicePolicy())
        return NodePlan(
            ranks=(RankPlan(0, 0, ()),),
            apps=(AppPlan(tuple(line), self.cwd, path=os.path.dirname(self.mpirun.path), mpi="none"),),
            env=(),
            scrub=(*SCRUB, "MSLAUNCH_*"),
            services=services,
            stdin=self.readers,
            pty="no",
            grace=self.grace,
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
    counts, first = _counted(request, allocation)
    exports = [exported(app, environ, lambda name: matching((name,), environ)) for app in request.apps]
    crowded = not allocation.declared and sum(counts) > (allocation.nodes[0].slots or 1)
    words = translate(request, allocation, counts, mpirun, exports, not os.geteuid(), crowded)
    return MpirunJob(request, allocation, mpirun, counts, first, words, cwd, jobid)


def _counted(request: Request, allocation: Allocation) -> tuple[tuple[int, ...], Node]:
    """The ranks of each program, and the node of rank 0; our own rules say it, where no host must be asked."""
    nodes = allocation.nodes
    if all(node.slots is not None for node in nodes) and not topology_decides(request.policy):
        jobmap = map_job(request, allocation, {})
        apps = [placement.app for placement in jobmap.placements]
        counts = tuple(apps.count(number) for number in range(len(request.apps)))
        return counts, jobmap.nodes[jobmap.placements[0].node]
    said = tuple(app.np for app in request.apps if app.np is not None)
    if len(said) < len(request.apps):
        todo = "say with -n how many ranks there are, or give each host slots=N"
        raise UsageError("how many ranks there are depends on the cores of other hosts", "--backend openmpi", todo)
    usable = [node for node in nodes if not (node.local and request.policy.nolocal)]
    return said, (usable or nodes)[0]
