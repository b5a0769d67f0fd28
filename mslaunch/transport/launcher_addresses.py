"""The addresses of this host that agents try when they call back, the likeliest first.

First the one that the kernel's routes have for the agent's host, if that host is an address or is listed in /etc/hosts:
no name service is asked, which may take seconds to answer.  Addresses of bridges are last: a bridge for containers or
virtual machines (docker0, virbr0) has the same address on all hosts, and leads each of them to itself.  Loopback does
so on every host, and is left out.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.own_addresses import addresses, is_loopback, source_address
from mslaunch.host.system_files import head_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOSTS = "/etc/hosts"
_MOST = 1 << 20  # bytes of that file
_ROUTES = 64  # hosts whose routes are looked at for one list


class LauncherAddresses:
    """Those of this host at one time."""

    def __init__(self) -> None:
        self._known = [address for address in addresses() if not is_loopback(address)]
        self._listed = by_name(head_of(_HOSTS, _MOST))

    def for_hosts(self, names: Iterable[str]) -> list[str]:
        """In the order for agents on these hosts."""
        numbers = [self._listed.get(name, name) for name in list(names)[:_ROUTES]]
        routes = [route for route in map(source_address, numbers) if route in self._known]
        return list(dict.fromkeys([*routes, *self._known]))


def by_name(text: bytes) -> dict[str, str]:
    """The first address of each name in a file such as /etc/hosts; see hosts(5)."""
    found: dict[str, str] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            found.setdefault(name, address)
    return found
