"""oneCCL in ranks that are no MPI programs: their numbers on the host from variables instead of from hydra.

With CCL_PROCESS_LAUNCHER=none oneCCL wants CCL_LOCAL_RANK and CCL_LOCAL_SIZE, and it reaches the others by libfabric
instead of MPI with CCL_ATL_TRANSPORT=ofi ("Environment Variables", oneCCL Developer Guide 2021.17).  How ranks get the
address of its key-value store is the program's own business.
"""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework, RankInfo


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks of a node."""
    return {
        "CCL_PROCESS_LAUNCHER": "none",
        "CCL_ATL_TRANSPORT": "ofi",
        "CCL_LOCAL_SIZE": place.local_size,
    }


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own."""
    return {"CCL_LOCAL_RANK": place.local_rank}


ONECCL = Framework("oneCCL", job=job_env, rank=rank_env)
