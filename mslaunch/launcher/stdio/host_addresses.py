"""Whereabouts: the address that stands for a host in the names of files (`%a`, msrun's {ip}).

It is what a person would call the host by, no proof that anybody reaches it; where ranks meet is `wireup`'s.  It asks
no name service.  The surprising thing: a job of this host alone is at 127.0.0.1, as with msrun, although the host has
better addresses.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.source_address import source_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.launcher.agents.connection import AgentConnection

_LOCALHOST = "127.0.0.1"


def addresses_of(peers: Sequence[AgentConnection], master: str = "") -> Callable[[int], str]:
    """Host by host, in the order of the map; `master`: where other launchers of the same job meet (`model.Share`)."""
    if master:
        here = source_address(master) or _LOCALHOST  # no way there: the launch will say so
        return lambda node: here
    if len(peers) == 1 and peers[0].node.local:
        return lambda node: _LOCALHOST
    found = [_address(peer, peers) for peer in peers]
    return lambda node: found[node]


def _address(peer: AgentConnection, peers: Sequence[AgentConnection]) -> str:
    """The launcher's host is where others were called from; of them, what we called or what they told first."""
    name = peer.node.name
    own = peer.hello.addresses if peer.hello else ()
    if ":" in name or name.replace(".", "").isdigit():
        return name
    if peer.node.local:
        seen = (other.hello.seen_from for other in peers if other.hello)
        return next((address for address in seen if address in own), own[0] if own else _LOCALHOST)
    return own[0] if own else name
