"""The address that stands for a host in names of files: %a, msrun's {ip}.

It is for display: the address by which a host was called, or the first that its agent found.  Whether ranks reach it is
checked by `agents.rendezvous`.  No name service is asked.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.source_address import source_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.protocol.control import Hello

    Host = tuple[Node, "Hello | None"]

_LOCALHOST = "127.0.0.1"


def addresses_of(hosts: Sequence[Host], master: str = "") -> Callable[[int], str]:
    """Addresses by the index of a host in the map; `master` is `Share.address`, where several launchers meet.

    A job on this host alone is at 127.0.0.1, as with msrun.
    """
    if master:
        own = source_address(master) or _LOCALHOST  # unreachable, which the launch reports later
        return lambda node: own
    if len(hosts) == 1 and hosts[0][0].local:
        return lambda node: _LOCALHOST
    return [_address(host, hosts) for host in hosts].__getitem__


def _address(host: Host, hosts: Sequence[Host]) -> str:
    """For the launcher's own host: the address that other agents were called from, if it is one of its own."""
    node, hello = host
    own = hello.addresses if hello else ()
    if ":" in node.name or node.name.replace(".", "").isdigit():
        return node.name
    if node.local:
        seen = (other.seen_from for _, other in hosts if other)
        return next((address for address in seen if address in own), own[0] if own else _LOCALHOST)
    return own[0] if own else node.name
