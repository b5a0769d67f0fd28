"""The table of transports: which opener starts the agents of which nodes."""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.transport.base import OpenContext, Opener

#: word -> opener, in the order in which they are asked: forking is safe only while there are no threads
TRANSPORTS = {
    "local": "transport.fork:open_local",
    "rsh": "transport.rsh_program:open_by_rsh",
    "ssh": "transport.ssh.ssh_link:open_by_ssh",
}


def open_links(nodes: Sequence[Node], context: OpenContext) -> None:
    """Open a link to each node: "local" for this host, for others the transport of the policy."""
    by_word: dict[str, list[Node]] = {word: [] for word in TRANSPORTS}
    for node in nodes:
        word = "local" if node.local else context.policy.transport
        if word not in by_word:
            raise UsageError(f"there is no transport {word!r}", node.name, f"use one of {', '.join(TRANSPORTS)}")
        by_word[word].append(node)
    for word, some in by_word.items():
        if some:
            opener: Opener = load(TRANSPORTS[word])
            opener(some, context)
