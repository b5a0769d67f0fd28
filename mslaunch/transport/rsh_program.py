"""The transport `rsh`: a program of the user's, such as ssh or kubectl exec, carries the link.

It is called as mpirun calls its plm_rsh_agent: AGENT [ARGS] [USER@]HOST COMMAND.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.transport.bootstrap import make_boot
from mslaunch.transport.process_link import ProcessLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.transport.base import OpenContext


def open_by_rsh(nodes: Sequence[Node], context: OpenContext) -> None:
    """A process for each node; see `base.Opener`."""
    policy = context.policy
    boot = make_boot(policy.python)
    for node in nodes:
        host = f"{node.user}@{node.name}" if node.user else node.name
        port = ["-p", str(node.port)] if node.port and os.path.basename(policy.agent[0]) == "ssh" else []
        context.opened(ProcessLink(node, [*policy.agent, *policy.agent_args, *port, host, boot.command], boot.payload))
