"""What travels to other hosts: written by scripts/make-manifest, which follows the imports of the agent.

`CORE` is sent to every host at once.  `PARTS` are sent when an agent asks for one, by the name of its entry module.
"""

from __future__ import annotations

# fmt: off
CORE = (
    "mslaunch.agent",
    "mslaunch.agent.agent",
    "mslaunch.agent.guard",
    "mslaunch.agent.main",
    "mslaunch.agent.mpi",
    "mslaunch.agent.mpi.detect",
    "mslaunch.agent.mpi.detect.openmpi_hint",
    "mslaunch.agent.mpi.front_end",
    "mslaunch.agent.mpi.launcher_calls",
    "mslaunch.agent.mpi.pmi_socket",
    "mslaunch.agent.mpi.protocol_choice",
    "mslaunch.agent.mpi.shm_cleanup",
    "mslaunch.agent.node_job",
    "mslaunch.agent.on_demand",
    "mslaunch.agent.ports",
    "mslaunch.agent.ranks",
    "mslaunch.agent.ranks.cpu_affinity",
    "mslaunch.agent.ranks.pipes",
    "mslaunch.agent.ranks.rank",
    "mslaunch.agent.ranks.rank_environment",
    "mslaunch.agent.ranks.session_dir",
    "mslaunch.agent.reachability",
    "mslaunch.agent.services",
    "mslaunch.agent.services.manager",
    "mslaunch.agent.services.service",
    "mslaunch.datamodel",
    "mslaunch.datamodel.exit_status",
    "mslaunch.datamodel.node_plan",
    "mslaunch.datamodel.topology",
    "mslaunch.errors",
    "mslaunch.faststd",
    "mslaunch.host",
    "mslaunch.host.cpus",
    "mslaunch.host.free_ports",
    "mslaunch.host.own_addresses",
    "mslaunch.host.programs",
    "mslaunch.host.read_topology",
    "mslaunch.protocol",
    "mslaunch.protocol.codec",
    "mslaunch.protocol.control",
    "mslaunch.protocol.frames",
    "mslaunch.protocol.mpi",
    "mslaunch.runtime",
    "mslaunch.runtime.loop",
    "mslaunch.runtime.output_stream",
    "mslaunch.runtime.poller",
    "mslaunch.runtime.timers",
    "mslaunch.runtime.writer",
)

PARTS = {
    "agent.mpi.detect.mpi_library": (
        "mslaunch.agent.mpi.detect.libmpi_file",
        "mslaunch.agent.mpi.detect.mpi_library",
        "mslaunch.agent.mpi.detect.python_programs",
        "mslaunch.host.dynamic_linker",
        "mslaunch.host.elf",
    ),
    "agent.mpi.pmi.pmi_engine": (
        "mslaunch.agent.mpi.pmi",
        "mslaunch.agent.mpi.pmi.key_value_store",
        "mslaunch.agent.mpi.pmi.pmi1",
        "mslaunch.agent.mpi.pmi.pmi2",
        "mslaunch.agent.mpi.pmi.pmi_engine",
        "mslaunch.agent.mpi.pmi.pmi_wire",
    ),
    "agent.mpi.pmix.pmix_server": (
        "mslaunch.agent.mpi.pmix",
        "mslaunch.agent.mpi.pmix.callbacks",
        "mslaunch.agent.mpi.pmix.job_info",
        "mslaunch.agent.mpi.pmix.libpmix",
        "mslaunch.agent.mpi.pmix.mca_exclusions",
        "mslaunch.agent.mpi.pmix.pmix_server",
        "mslaunch.agent.mpi.pmix.pmix_topology",
        "mslaunch.agent.mpi.pmix.pmix_values",
        "mslaunch.agent.mpi.pmix.publish_lookup_spawn",
    ),
    "agent.mpi.singleton": (
        "mslaunch.agent.mpi.detect.libmpi_file",
        "mslaunch.agent.mpi.singleton",
        "mslaunch.host.elf",
    ),
    "agent.ranks.numa_memory": (
        "mslaunch.agent.ranks.numa_memory",
    ),
    "agent.services.service_program": (
        "mslaunch.agent.services.mindspore_scheduler",
        "mslaunch.agent.services.service_program",
        "mslaunch.host.listeners",
        "mslaunch.host.processes",
    ),
    "agent.stack_traces": (
        "mslaunch.agent.stack_traces",
    ),
    "host.listeners": (
        "mslaunch.host.listeners",
        "mslaunch.host.processes",
    ),
}
