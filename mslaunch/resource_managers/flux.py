"""Flux: the hosts of the instance that the launcher runs in, and the cores that its brokers manage.

`flux getattr hostlist` has the hosts by broker rank, in Slurm's notation, and `flux resource list -s all -n -o
"{nodelist} {ncores}"` their cores (flux-broker-attributes(7), flux-resource(1)); PRRTE reads the same from R.  Agents
are started by SSH.  An instance that ends sends SIGTERM, then SIGKILL to its jobs, the script of the launcher included.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.resource_managers.managers import LEAVE, grant_of
from mslaunch.resource_managers.node_lists import expand

if TYPE_CHECKING:
    from mslaunch.resource_managers.managers import Grant, HostAccess


def grant(host: HostAccess) -> Grant | None:
    """The hosts of the instance whose broker FLUX_URI names."""
    if not host.environ.get("FLUX_URI"):
        return None
    title = "the Flux instance"
    slots = dict.fromkeys(_names(host.run(["flux", "getattr", "hostlist"]), "flux getattr hostlist"), 0)
    command = ["flux", "resource", "list", "-s", "all", "-n", "-o", "{nodelist} {ncores}"]
    for line in host.run(command).splitlines():
        listed, _, cores = line.strip().rpartition(" ")
        names = _names(listed, "flux resource list")
        if not names:
            continue
        if not (cores.isascii() and cores.isdigit() and len(cores) < 9 and set(names) <= set(slots)):
            raise LaunchError(f"flux resource list: {line[:80]!r} is not hosts of {title} and cores", todo=LEAVE)
        for name in names:
            slots[name] += int(cores) // len(names)  # a line has the cores of hosts that are alike
    return grant_of(slots, title, "flux resource list", host)


def _names(text: str, source: str) -> list[str]:
    try:
        return expand(text.strip())
    except ValueError as error:
        raise LaunchError(f"{source}: {text.strip()[:80]!r} cannot be read: {error}", todo=LEAVE) from None
