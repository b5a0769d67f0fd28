"""What MindSpore looks for: the Dynamic Cluster's variables, and those that `get_rank()` reads before `init()`.

MS_NODE_ID must be the rank, as a number: names are sorted as text and would scramble the ranks.  MS_SCHED_HOST must
be an IP address, the same for all ranks.  Surprising: RANK_ID and DEVICE_ID are overwritten from
OMPI_COMM_WORLD_RANK and LOCAL_RANK when mindspore.communication is imported, so the two must agree.
"""

from __future__ import annotations

from mslaunch.frameworks.place import Place
from mslaunch.model import ServicePlan

SCRUB = (
    "RANK_ID", "RANK_SIZE", "DEVICE_ID", "LOCAL_RANK_SIZE", "RANK_TABLE_FILE", "MS_ROLE", "MS_NODE_ID", "MS_SCHED_HOST",
    "MS_SCHED_PORT", "MS_WORKER_NUM", "MS_SERVER_NUM", "MS_WORKER_IP",
)  # fmt: skip


#: how long ranks and scheduler wait for one another, where the user has not said; the second was its name before 2.4
DEFAULTS = ("MS_TOPO_TIMEOUT=600", "MS_CLUSTER_TIMEOUT=600")


def job_env(place: Place) -> dict[str, object]:
    """Shared by all ranks of a node."""
    return {"RANK_SIZE": place.size, "LOCAL_RANK_SIZE": place.local_size, "MS_ROLE": "MS_WORKER", **_cluster(place)}


def rank_env(place: Place) -> dict[str, object]:
    """One rank's own."""
    return {"RANK_ID": place.rank, "DEVICE_ID": place.local_rank, "MS_NODE_ID": place.rank}


def _cluster(place: Place) -> dict[str, object]:
    return {
        "MS_SCHED_HOST": place.address,
        "MS_SCHED_PORT": place.service_port,
        "MS_WORKER_NUM": place.size,
    }


def service(place: Place) -> ServicePlan:
    """The scheduler, on rank 0's host, should a rank ask for it."""
    env = [f"{name}={value}" for name, value in {**_cluster(place), "MS_ROLE": "MS_SCHED"}.items()]
    return ServicePlan(place.service_port, tuple(env))
