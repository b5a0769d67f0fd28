"""What travels to other hosts: written by scripts/make-manifest, which follows the imports of the agent.

`CORE` is sent to every host at once.  `PARTS` are sent when an agent asks for one, by the name of its entry module.
"""

from __future__ import annotations

# fmt: off
CORE = (
    "mslaunch.agent",
    "mslaunch.agent.agent",
    "mslaunch.agent.guard",
    "mslaunch.agent.launcher_link",
    "mslaunch.agent.main",
    "mslaunch.agent.mpi",
    "mslaunch.agent.mpi.mpi_servers",
    "mslaunch.agent.mpi.openmpi_hint",
    "mslaunch.agent.mpi.protocols",
    "mslaunch.agent.mpi.shm_cleanup",
    "mslaunch.agent.mpi.wire_up",
    "mslaunch.agent.node_job",
    "mslaunch.agent.on_demand",
    "mslaunch.agent.ports",
    "mslaunch.agent.ranks",
    "mslaunch.agent.ranks.cpu_affinity",
    "mslaunch.agent.ranks.pmi_socket",
    "mslaunch.agent.ranks.programs_of_shells",
    "mslaunch.agent.ranks.rank",
    "mslaunch.agent.ranks.rank_environment",
    "mslaunch.agent.ranks.session_dir",
    "mslaunch.agent.reachability",
    "mslaunch.agent.services",
    "mslaunch.agent.services.manager",
    "mslaunch.agent.termination",
    "mslaunch.datamodel",
    "mslaunch.datamodel.node_plan",
    "mslaunch.datamodel.node_report",
    "mslaunch.errors",
    "mslaunch.faststd",
    "mslaunch.host",
    "mslaunch.host.files",
    "mslaunch.host.free_ports",
    "mslaunch.host.freed_memory",
    "mslaunch.host.own_addresses",
    "mslaunch.host.piped_files",
    "mslaunch.host.processes",
    "mslaunch.host.programs",
    "mslaunch.host.read_topology",
    "mslaunch.host.usable_cpus",
    "mslaunch.protocol",
    "mslaunch.protocol.codec",
    "mslaunch.protocol.control",
    "mslaunch.protocol.frames",
    "mslaunch.protocol.mpi",
    "mslaunch.runtime",
    "mslaunch.runtime.fd_reader",
    "mslaunch.runtime.fd_writer",
    "mslaunch.runtime.loop",
    "mslaunch.runtime.program_streams",
)

PARTS = {
    "agent.call_launcher": (
        "mslaunch.agent.call_launcher",
        "mslaunch.protocol.call_proof",
    ),
    "agent.leftovers": (
        "mslaunch.agent.leftovers",
    ),
    "agent.mpi.library_of_program": (
        "mslaunch.agent.mpi.libmpi_maker",
        "mslaunch.agent.mpi.library_of_program",
        "mslaunch.agent.mpi.library_of_python",
        "mslaunch.host.dynamic_linker",
        "mslaunch.host.elf",
    ),
    "agent.mpi.pmi.pmi_server": (
        "mslaunch.agent.mpi.pmi",
        "mslaunch.agent.mpi.pmi.key_value_store",
        "mslaunch.agent.mpi.pmi.pmi1",
        "mslaunch.agent.mpi.pmi.pmi2",
        "mslaunch.agent.mpi.pmi.pmi_barriers",
        "mslaunch.agent.mpi.pmi.pmi_client",
        "mslaunch.agent.mpi.pmi.pmi_server",
        "mslaunch.agent.mpi.pmi.pmi_wire",
    ),
    "agent.mpi.pmix.pmix_server": (
        "mslaunch.agent.mpi.pmix",
        "mslaunch.agent.mpi.pmix.client_port",
        "mslaunch.agent.mpi.pmix.libpmix",
        "mslaunch.agent.mpi.pmix.libpmix_callbacks",
        "mslaunch.agent.mpi.pmix.mca_exclusions",
        "mslaunch.agent.mpi.pmix.pmix_job_info",
        "mslaunch.agent.mpi.pmix.pmix_operations",
        "mslaunch.agent.mpi.pmix.pmix_server",
        "mslaunch.agent.mpi.pmix.pmix_values",
        "mslaunch.agent.mpi.pmix.relayed_client",
        "mslaunch.host.connection_owners",
    ),
    "agent.mpi.singleton": (
        "mslaunch.agent.mpi.libmpi_maker",
        "mslaunch.agent.mpi.singleton",
        "mslaunch.host.elf",
    ),
    "agent.port_claims": (
        "mslaunch.agent.port_claims",
    ),
    "agent.ranks.numa_memory": (
        "mslaunch.agent.ranks.numa_memory",
    ),
    "agent.services.service": (
        "mslaunch.agent.services.mindspore_scheduler",
        "mslaunch.agent.services.readiness",
        "mslaunch.agent.services.service",
        "mslaunch.agent.services.service_kind",
        "mslaunch.host.connection_owners",
        "mslaunch.host.listeners",
    ),
    "agent.stack_traces": (
        "mslaunch.agent.stack_traces",
    ),
    "host.connection_owners": (
        "mslaunch.host.connection_owners",
    ),
    "host.listeners": (
        "mslaunch.host.connection_owners",
        "mslaunch.host.listeners",
    ),
    "host.start_limits": (
        "mslaunch.host.start_limits",
    ),
}
