"""What `jax.distributed.initialize()` finds without arguments (jax/_src/clusters/ompi_cluster.py, jax 0.10).

JAX takes ranks for Open MPI's if OMPI_MCA_orte_hnp_uri exists, and reads their numbers from OMPI_COMM_WORLD_RANK, SIZE
and LOCAL_RANK.  From the URI it takes the address at which process 0 is to serve, and from JAX_COORDINATOR_PORT the
port.  Versions without that variable compute a port from the number before the dot: it differs with the port, so that
two attempts do not meet.  No libmpi connects to this URI, but where it exists that of 4.1 wants an ompi-server before
worlds meet: `agent.mpi.pmix.pmix_job_info` names one.
"""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework, RankInfo

_JOBS = 1 << 12  # Open MPI 4.1 numbers jobs by multiples of this, and JAX divides by it


def job_env(place: RankInfo) -> dict[str, object]:
    """Shared by all ranks.  JAX would take the device with the local rank, also where a rank sees none but its own."""
    own = {"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(place.devices)))} if place.devices else {}
    return {**own, **_coordinator(place)}


def _coordinator(place: RankInfo) -> dict[str, object]:
    """Nothing without a port, or where ranks do not know their numbers."""
    port = place.own_port
    if not port or not place.numbered:
        return {}
    address = f"tcp6://[{place.address}]" if ":" in place.address else f"tcp://{place.address}"
    return {"OMPI_MCA_orte_hnp_uri": f"{port * _JOBS}.0;{address}:{port}", "JAX_COORDINATOR_PORT": port}


#: JAX itself reads the address (jax/_src/distributed.py), and programs in pods of Kubeflow's Trainer the other two
SCRUB = ("JAX_COORDINATOR_PORT", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")

JAX = Framework("JAX", ("jax",), SCRUB, job=job_env, own_port=True)
