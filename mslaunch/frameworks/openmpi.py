"""The variables of Open MPI's mpirun 4.1, as far as they state plain facts (mpirun(1), and runs of 4.1.4).

libmpi is not wired up here: the agent sets what names a server, for programs that have one
(`agent.mpi.protocols`); nobody sets what names mpirun's daemons.  docs/frameworks.md has the table of all.
"""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework, ProgramInfo, RankInfo

SCRUB = (
    "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_COMMAND", "OMPI_ARGV", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_NUM_PROCS", "OMPI_FILE_LOCATION", "OMPI_MCA_orte_ess_*", "OMPI_MCA_ess_*", "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_parent_uri", "OMPI_MCA_orte_node_regex", "OMPI_MCA_orte_app_num",
    "OMPI_MCA_orte_launch", "OMPI_MCA_orte_num_nodes", "OMPI_MCA_orte_jobfam_session_dir",
    "OMPI_MCA_orte_top_session_dir", "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_orte_bound_at_launch",
    "OMPI_MCA_mpi_oversubscribe", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs", "OMPI_MCA_orte_num_restarts",
    "OMPI_MCA_pmix", "OMPI_MCA_ess", "OMPI_WORLD_*", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_ID", "PMIX_HOSTNAME",
    "PMIX_VERSION", "PMIX_SECURITY_MODE", "PMIX_BFROP_BUFFER_TYPE", "PMIX_GDS_MODULE", "PMIX_PTL_MODULE",
    "PMIX_SERVER_*", "PMIX_LAUNCHER_*", "PMIX_DSTORE_*", "PMIX_SYSTEM_TMPDIR", "PMIX_KEEPALIVE_PIPE",
    "PMIX_REINCARNATION", "PMI_*", "HYDI_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PRTE_LAUNCHED", "OMPI_VERSION",
    "OMPI_MCA_pmix_server_uri",
)  # fmt: skip

#: the libraries of two kinds of network are to print no stacks of their own in a crash
DEFAULTS = {"HFI_NO_BACKTRACE": 1, "IPATH_NO_BACKTRACE": 1}
_LONGEST = (1 << 17) - len("OMPI_ARGV=") - 1  # Linux takes no longer variable: MAX_ARG_STRLEN, execve(2)


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks of a node; nothing in a dry run, whose ranks would take the numbers for their own."""
    if place.simulated:
        return {}
    sizes = place.sizes or (place.size,)
    return {
        "OMPI_COMM_WORLD_SIZE": place.size,
        "OMPI_COMM_WORLD_LOCAL_SIZE": place.local_size,
        "OMPI_UNIVERSE_SIZE": place.slots,
        "OMPI_NUM_APP_CTX": len(sizes),
        "OMPI_APP_CTX_NUM_PROCS": " ".join(map(str, sizes)),
        "OMPI_FIRST_RANKS": " ".join(str(sum(sizes[:app])) for app in range(len(sizes))),
        "OMPI_MCA_orte_num_nodes": place.nodes,
        "OMPI_MCA_orte_ess_num_procs": place.size,
        "OMPI_MCA_ess_base_jobid": place.job,
        "OMPI_MCA_mpi_oversubscribe": int(place.crowded),
    }


def app_env(program: ProgramInfo) -> dict[str, object]:
    """Shared by all ranks of a program.  OMPI_ARGV is left out without arguments, and if they are longer than a
    variable can be (4.1.4 starts nothing then).
    """
    known: dict[str, object] = {
        "OMPI_COMMAND": program.argv[0].rstrip("/").rpartition("/")[2],
        "OMPI_MCA_orte_app_num": program.number,
        "OMPI_MCA_initial_wdir": program.wdir,
    }
    words = " ".join(program.argv[1:])
    if len(program.argv) > 1 and len(words.encode("utf-8", "surrogateescape")) <= _LONGEST:
        known["OMPI_ARGV"] = words
    return known


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own.  NODE_RANK is the local rank, as long as a job is alone on its nodes (facts of 4.1.4)."""
    if place.simulated:
        return {}
    known: dict[str, object] = {
        "OMPI_COMM_WORLD_RANK": place.rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": place.local_rank,
        "OMPI_COMM_WORLD_NODE_RANK": place.local_rank,
        "OMPI_MCA_ess_base_vpid": place.rank,
        "OMPI_MCA_orte_ess_node_rank": place.local_rank,
    }
    if not place.numbered:
        del known["OMPI_COMM_WORLD_RANK"], known["OMPI_MCA_ess_base_vpid"]
    if place.bound:
        known["OMPI_MCA_orte_bound_at_launch"] = 1
    return known


OPENMPI = Framework(
    "Open MPI",
    scrub=SCRUB,
    job=job_env,
    program=app_env,
    rank=rank_env,
    defaults=lambda size, given, restarts: DEFAULTS,
)
