"""What travels to other hosts: written by scripts/make-manifest, which follows the imports of the agent.

`CORE` is sent to every host at once.  `PARTS` are sent when an agent asks for one, by the name of its entry module.
"""

from __future__ import annotations

# fmt: off
CORE = (
    "mslaunch.agent",
    "mslaunch.agent.agent",
    "mslaunch.agent.cpus",
    "mslaunch.agent.crew",
    "mslaunch.agent.entry",
    "mslaunch.agent.fds",
    "mslaunch.agent.files",
    "mslaunch.agent.guard",
    "mslaunch.agent.hints",
    "mslaunch.agent.leftovers",
    "mslaunch.agent.lines",
    "mslaunch.agent.mpi",
    "mslaunch.agent.network",
    "mslaunch.agent.offers",
    "mslaunch.agent.parts",
    "mslaunch.agent.ports",
    "mslaunch.agent.program",
    "mslaunch.agent.ranks",
    "mslaunch.agent.service",
    "mslaunch.agent.services",
    "mslaunch.agent.topology",
    "mslaunch.agent.uplink",
    "mslaunch.agent.variables",
    "mslaunch.errors",
    "mslaunch.lean",
    "mslaunch.model",
    "mslaunch.wire",
    "mslaunch.wire.exchanges",
    "mslaunch.wire.fields",
    "mslaunch.wire.frames",
    "mslaunch.wire.loop",
    "mslaunch.wire.messages",
    "mslaunch.wire.outbox",
)

PARTS = {
    "agent.alone": (
        "mslaunch.agent.alone",
        "mslaunch.agent.elf",
        "mslaunch.agent.libmpi",
    ),
    "agent.family": (
        "mslaunch.agent.elf",
        "mslaunch.agent.family",
        "mslaunch.agent.libmpi",
        "mslaunch.agent.loader",
        "mslaunch.agent.pythons",
    ),
    "agent.listening": (
        "mslaunch.agent.listening",
        "mslaunch.agent.processes",
    ),
    "agent.memory": (
        "mslaunch.agent.memory",
    ),
    "agent.pmi": (
        "mslaunch.agent.kvs",
        "mslaunch.agent.pmi",
        "mslaunch.agent.pmi1",
        "mslaunch.agent.pmi2",
        "mslaunch.agent.pmiwords",
    ),
    "agent.pmix": (
        "mslaunch.agent.fabrics",
        "mslaunch.agent.libpmix",
        "mslaunch.agent.pmix",
        "mslaunch.agent.pmixasks",
        "mslaunch.agent.pmixcalls",
        "mslaunch.agent.pmixjob",
        "mslaunch.agent.pmixplace",
        "mslaunch.agent.pmixvalues",
    ),
    "agent.serving": (
        "mslaunch.agent.listening",
        "mslaunch.agent.mindspore",
        "mslaunch.agent.processes",
        "mslaunch.agent.serving",
    ),
    "agent.traces": (
        "mslaunch.agent.traces",
    ),
}
