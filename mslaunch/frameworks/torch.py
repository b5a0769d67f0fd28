"""The variables of torch.distributed's env:// and of torchrun (torch/distributed/rendezvous.py and run.py).

Of TORCHELASTIC_ variables those are set that state facts: programs and Lightning ask by RUN_ID whether a launcher has
started them.  TORCHELASTIC_USE_AGENT_STORE is not set: it promises a store that the launcher would have to serve.
NODE_RANK and GROUP_RANK are the same number under two names, Lightning's and torch's.  Ranks have one role, which
torchrun calls "default".
"""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework, RankInfo

SCRUB = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*",
)  # fmt: skip


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks of a node."""
    return {
        "WORLD_SIZE": place.size,
        "LOCAL_WORLD_SIZE": place.local_size,
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": place.size,
        **({"NODE_RANK": place.node, "GROUP_RANK": place.node} if place.numbered else {}),
        **({"GROUP_WORLD_SIZE": place.nodes} if place.nodes else {}),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": place.port,
        **(_launch(place) if place.jobid else {}),
    }


def _launch(place: RankInfo) -> dict[str, object]:
    return {
        "TORCHELASTIC_RUN_ID": place.jobid,
        "TORCHELASTIC_RESTART_COUNT": place.attempt - 1,
        "TORCHELASTIC_MAX_RESTARTS": place.max_restarts,
    }


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own."""
    numbers = {"RANK": place.rank, "ROLE_RANK": place.rank} if place.numbered else {}
    return {**numbers, "LOCAL_RANK": place.local_rank}


#: packages that stand on torch, whose programs need not name it; their names are ordinary words too, so as imports
_ABOVE = ("accelerate", "deepspeed", "lightning", "pytorch_lightning", "transformers")
WORDS = ("torch", "torchrun", *(f"{how} {name}" for name in _ABOVE for how in ("import", "from")))

#: MKL reads OMPI_COMM_WORLD_LOCAL_SIZE, and then takes fewer threads than there are cpus: 1 of 2 for one rank (torch
#: 2.14 of PyPI for x86, MKL 2024.2), unless it is told to keep to their number (oneMKL Developer Guide, MKL_DYNAMIC)
LONE = ("MKL_DYNAMIC=FALSE",)

TORCH = Framework("torch", WORDS, SCRUB, job=job_env, rank=rank_env, port="MASTER_ADDR", lone=LONE)
