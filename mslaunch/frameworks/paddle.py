"""Paddle: what paddle.distributed finds, as its own launcher sets it (launch/controllers/collective.py, Paddle 3).

`init_parallel_env` meets at MASTER_ADDR and MASTER_PORT if they are set (parallel.py), which they always are here, and
each rank serves at its own of PADDLE_TRAINER_ENDPOINTS.  A rank takes the first device of FLAGS_selected_gpus or
_xpus, counted among those that it sees: without the variable all ranks of a host would take the first.
"""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework, RankInfo


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks of a node; nothing where no addresses are known."""
    if not place.rank_addresses:
        return {}
    return {
        "PADDLE_MASTER": f"{place.address}:{place.port}",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(place.rank_addresses),
        "PADDLE_TRAINERS_NUM": place.size,
        "PADDLE_GLOBAL_SIZE": place.size,
        "PADDLE_LOCAL_SIZE": place.local_size,
        "PADDLE_NNODES": place.nodes,
    }


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own."""
    if not place.rank_addresses:
        return {}
    devices = ",".join(map(str, range(place.devices))) if place.devices else place.local_rank
    return {
        "PADDLE_TRAINER_ID": place.rank,
        "PADDLE_GLOBAL_RANK": place.rank,
        "PADDLE_LOCAL_RANK": place.local_rank,
        "PADDLE_RANK_IN_NODE": place.local_rank,
        "PADDLE_CURRENT_ENDPOINT": place.rank_addresses[place.rank],
        "FLAGS_selected_gpus": devices,
        "FLAGS_selected_xpus": devices,
    }


PADDLE = Framework("Paddle", job=job_env, rank=rank_env, rank_port=True)
