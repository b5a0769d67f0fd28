"""The order of programs: which ranks start at once, and the port for which the next ones wait (--ready).

Loaded only for launches that have it.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.datamodel.request import Request

MEETING_PORT = -1  #: as `AppContext.ready`: that of MASTER_PORT, which is not known before the hosts are connected


class ProgramStep(NamedTuple):
    """Ranks that start at the same time."""

    ranks: frozenset[int]
    head: int = -1  # the rank that must listen before those of the next step start; -1: this is the last one
    port: int = 0  # where it must; `MEETING_PORT`: at MASTER_PORT


def check_order(request: Request) -> None:
    """Raises `UsageError` where programs cannot be started one after the other as --ready asks."""
    option = ready_option(request.apps[-1].ready)
    if request.apps[-1].ready:
        what = "no program follows this one, so nothing would wait for its port"
        raise UsageError(what, option, "write a colon and the program that needs it: --ready PORT HEAD : WORKER")
    if request.cluster.share:
        option = ready_option(next(app.ready for app in request.apps if app.ready))
        what = "each of several launchers starts its part of the ranks, and does not see the ports of the others"
        raise UsageError(what, option, "start all ranks by one command, with -H or --hostfile")


def checked_steps(request: Request, jobmap: JobMap) -> tuple[ProgramStep, ...]:
    """As `steps_of`; raises as `check_order`."""
    check_order(request)
    return steps_of(request, jobmap)


def ready_option(port: int) -> str:
    """The option as it was written."""
    return f"--ready {'{master_port}' if port == MEETING_PORT else port}"


def steps_of(request: Request, jobmap: JobMap) -> tuple[ProgramStep, ...]:
    """The steps, first to last; the head of each is the first rank of the program with --ready."""
    steps = []
    ranks: list[int] = []
    for index, app in enumerate(request.apps):
        own = [placement.rank for placement in jobmap.placements if placement.app == index]
        ranks += own
        if app.ready:
            steps.append(ProgramStep(frozenset(ranks), min(own), app.ready))
            ranks = []
    return (*steps, ProgramStep(frozenset(ranks)))


def part_of(plan: NodePlan, steps: Sequence[ProgramStep], number: int) -> NodePlan | None:
    """What an agent is to start at one step, from 0, of its plan; None: nothing.

    Its services belong to the first step.
    """
    ranks = steps[number].ranks
    here = tuple(rank for rank in plan.ranks if rank.rank in ranks)
    first = number == 0
    if not here and not (first and (plan.services or not plan.ranks)):
        return None
    stdin = tuple(rank for rank in plan.stdin if rank in ranks)
    return plan._replace(ranks=here, stdin=stdin, services=plan.services if first else ())
