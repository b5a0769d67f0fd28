"""What Open MPI's mpirun 4.1 tells its ranks, as far as programs read it (mpirun(1), "Exported Environment Variables").

It does not wire up libmpi.  Surprising: OMPI_COMMAND and PMIX_RANK are *not* set, since the two together make
MindSpore take the MPI path (docs/frameworks.md).
"""

from __future__ import annotations

from mslaunch.frameworks.place import Place

SCRUB = (
    "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_COMMAND", "OMPI_ARGV", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_NUM_PROCS", "OMPI_FILE_LOCATION", "OMPI_MCA_orte_ess_*", "OMPI_MCA_ess_*", "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_app_num", "OMPI_MCA_orte_launch", "OMPI_MCA_orte_num_nodes",
    "OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_orte_top_session_dir", "OMPI_MCA_orte_precondition_transports",
    "OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_initial_wdir", "OMPI_MCA_pmix", "OMPI_MCA_ess", "OMPI_WORLD_*",
    "PMIX_*", "PMI_*", "HYDI_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PRTE_LAUNCHED",
)  # fmt: skip


def job_env(place: Place) -> dict[str, object]:
    """Shared by all ranks of a node."""
    return {
        "OMPI_COMM_WORLD_SIZE": place.size,
        "OMPI_COMM_WORLD_LOCAL_SIZE": place.local_size,
        "OMPI_UNIVERSE_SIZE": place.slots,
    }


def rank_env(place: Place) -> dict[str, object]:
    """One rank's own.  NODE_RANK is the local rank, as long as a job is alone on its nodes (facts of 4.1.4)."""
    return {
        "OMPI_COMM_WORLD_RANK": place.rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": place.local_rank,
        "OMPI_COMM_WORLD_NODE_RANK": place.local_rank,
    }
