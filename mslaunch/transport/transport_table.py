"""The table of transports: which opener starts the agents of other hosts; those of this host are forked."""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.transport.base import OpenContext, Opener

#: word -> opener
TRANSPORTS = {
    "blaunch": "transport.batch_tasks:open_by_blaunch",
    "flux": "transport.batch_tasks:open_by_flux",
    "qrsh": "transport.qrsh:open_by_qrsh",
    "rsh": "transport.rsh_program:open_by_rsh",
    "srun": "transport.srun:open_by_srun",
    "ssh": "transport.ssh.ssh_link:open_by_ssh",
    "tm": "transport.batch_tasks:open_by_tm",
}


def open_remote(nodes: Sequence[Node], context: OpenContext) -> None:
    """Open a link to each node, by the transport of the policy.  Nodes of this host have been opened before."""
    from mslaunch.transport.fork import release_ahead

    release_ahead()
    word = context.policy.transport
    if word not in TRANSPORTS:
        raise UsageError(f"there is no transport {word!r}", nodes[0].name, f"use one of {', '.join(TRANSPORTS)}")
    opener: Opener = load(TRANSPORTS[word])
    opener(nodes, context)
