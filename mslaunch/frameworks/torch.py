"""The variables of torch.distributed's env:// and its followers (torch/distributed/rendezvous.py).

TORCHELASTIC_ variables are not set: they promise a store that the agent would have to serve.  NODE_RANK and GROUP_RANK
are the same number under two names, torch's and Lightning's.
"""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework, RankInfo

SCRUB = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*", "SLURM_PROCID", "SLURM_LOCALID",
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_*",
)  # fmt: skip


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks of a node."""
    return {
        "WORLD_SIZE": place.size,
        "LOCAL_WORLD_SIZE": place.local_size,
        **({"NODE_RANK": place.node, "GROUP_RANK": place.node} if place.numbered else {}),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": place.port,
    }


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own."""
    return {**({"RANK": place.rank} if place.numbered else {}), "LOCAL_RANK": place.local_rank}


TORCH = Framework("torch", ("torch", "torchrun"), SCRUB, job=job_env, rank=rank_env, port="MASTER_ADDR")
