"""MindSpore: the variables of its Dynamic Cluster, those that `get_rank()` reads before `init()`, and its services.

MS_NODE_ID must be the rank, as a number: names are sorted as text and would scramble the ranks.  MS_SCHED_HOST must
be an IP address, the same for all ranks.  RANK_ID, RANK_SIZE and DEVICE_ID are overwritten from OMPI_COMM_WORLD_RANK,
SIZE and LOCAL_RANK when mindspore.communication is imported, so these must agree; in a dry run, where each rank may
play any of a thousand, there must be none of the latter.  OMPI_COMMAND and PMIX_RANK together would make
MindSpore take its MPI path, did MS_ROLE not stand in every rank's environment.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import SERVICE_BASE, ServiceId, ServicePlan
from mslaunch.datamodel.request import ServicePolicy
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.contract import Framework, RankInfo, ServiceInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRUB = (
    "RANK_ID", "RANK_SIZE", "DEVICE_ID", "LOCAL_RANK_SIZE", "RANK_TABLE_FILE", "MS_ROLE", "MS_NODE_ID", "MS_SCHED_HOST",
    "MS_SCHED_PORT", "MS_WORKER_NUM", "MS_SERVER_NUM", "MS_WORKER_IP", "MS_LOCAL_WORKER", "MS_NODE_RANK",
)  # fmt: skip

ROLES = {"": "MS_WORKER", "scheduler": "MS_SCHED", "server": "MS_PSERVER"}  #: by `RankInfo.role`
#: how long ranks and scheduler wait for one another, in seconds; the second was its name before 2.4
TIMEOUTS = ("MS_TOPO_TIMEOUT", "MS_CLUSTER_TIMEOUT")
#: seconds from one heartbeat of a worker to the next, the least and the most; MindSpore's own are 3 and 5
PACE = ("MS_RETRY_INTERVAL_LOWER", "MS_RETRY_INTERVAL_UPPER")
LARGE = 256  # workers; MindSpore itself asks its scheduler more seldom where there are more
#: whoever is started again is taken back: the scheduler by its ranks, a rank by the scheduler
RECOVERY = "MS_ENABLE_RECOVERY"
#: what the user has said of recovery holds for all hosts
FORWARD = ("MS_ENABLE_RECOVERY", "MS_RECOVERY_PATH")


def defaults(size: int, given: Sequence[Mapping[str, str]], restarts: bool) -> dict[str, object]:
    """For ranks and services.  What the user gave to one name of the timeout holds for both, and on all hosts.

    Only by its next heartbeat does a worker learn that all are there, or that the scheduler is another one.  So workers
    ask often, unless the user has said how often, or there are very many.
    """
    said = [values[name] for values in given for name in TIMEOUTS if values.get(name)]
    known: dict[str, object] = dict.fromkeys(TIMEOUTS, said[0] if said and "\0" not in said[0] else 600)
    if restarts:
        known[RECOVERY] = 1
    if size <= LARGE and not any(name in values for values in given for name in PACE):
        known.update(dict.fromkeys(PACE, 1))
    return known


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks of a node; without a port of the scheduler nothing promises one."""
    known: dict[str, object] = {"RANK_SIZE": place.size, "LOCAL_RANK_SIZE": place.local_size}
    if place.simulated:
        return {**known, "MS_WORKER_NUM": place.size}
    return {**known, "MS_ROLE": ROLES[place.role], **_cluster(place)} if place.service_port else known


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own."""
    if place.role:  # as in `services`
        return {"RANK_ID": 0} if place.role == "scheduler" else {}
    known: dict[str, object] = {"RANK_ID": place.rank} if place.numbered else {}
    known["DEVICE_ID"] = place.local_rank
    if place.numbered and not place.simulated and place.service_port:
        known["MS_NODE_ID"] = place.rank
    if place.even_cpus:
        known["MSRUN_CPU_LIST"] = list(place.even_cpus)  # for mindspore.runtime.set_cpu_affinity
    return known


def _cluster(place: RankInfo) -> dict[str, object]:
    known: dict[str, object] = {
        "MS_SCHED_HOST": place.service_address or place.address,
        "MS_SCHED_PORT": place.service_port,
        "MS_WORKER_NUM": place.size,
    }
    if place.servers:
        known["MS_SERVER_NUM"] = place.servers
    return known


def service(number: int) -> ServiceInfo:
    """The scheduler has the first id; the parameter servers follow."""
    if number == SERVICE_BASE:
        note = "(the scheduler is the process where MindSpore's ranks register; it is not a rank)"
        return ServiceInfo("scheduler", "the MindSpore scheduler", note, listens=True, restarts=True)
    server = SERVICE_BASE - 1 - number
    note = "(a parameter server stores parameters for MindSpore's ranks; it is not a rank)"
    return ServiceInfo(f"server.{server}", f"parameter server {server}", note)


def services(place: RankInfo, policy: ServicePolicy) -> tuple[ServicePlan, ...]:
    """The scheduler, and the parameter servers beside it; `place` is that of any rank.

    RANK_ID is what msrun tells the scheduler: it may run the program of the ranks, which may ask for it.  The servers
    are started at once, since they do nothing but wait for the scheduler.
    """
    shared, port = _cluster(place), place.service_port
    scheduler = _words({**shared, "MS_ROLE": "MS_SCHED", "RANK_ID": 0})
    server = _words({**shared, "MS_ROLE": "MS_PSERVER"})
    made = [ServicePlan(port, scheduler, SERVICE_BASE, policy.first, policy.program, policy.cpus, "mindspore")]
    made += (ServicePlan(0, server, ServiceId(SERVICE_BASE - 1 - at), True, "ranks") for at in range(place.servers))
    return tuple(plan._replace(name=service(plan.number).name, kind="mindspore") for plan in made)


def _words(known: dict[str, object]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in known.items())


MINDSPORE = Framework(
    "MindSpore",
    ("mindspore",),
    SCRUB,
    FORWARD,
    job=job_env,
    rank=rank_env,
    defaults=defaults,
    together=PACE,
    service_port="MS_SCHED_HOST",
    services=services,
    service=service,
)
