"""Here: what the launching host answers by itself while hosts are counted: is this name ours, what is in a file.

It reads files and interfaces, and asks nobody (no DNS).  The surprising thing: 127.0.0.2 and its like are other hosts,
for that is where one tests.
"""

from __future__ import annotations

import os

from mslaunch.agent.cpus import cores_here
from mslaunch.lean import TYPE_CHECKING
from mslaunch.plan.allocation import allocate

if TYPE_CHECKING:
    from mslaunch.model import Allocation, Request


def allocation_of(request: Request, hwthreads: bool = False) -> Allocation:
    """The hosts that a request names, as far as this host knows their slots."""
    return allocate(request, _read_text, is_local, os.uname().nodename, cores_here(hwthreads))


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def is_local(name: str) -> bool:
    """Does `name` mean this host?  Its own names do, and addresses of its interfaces."""
    own = os.uname().nodename
    if name in ("localhost", "127.0.0.1", "::1", "localhost.localdomain", own, own.split(".")[0]):
        return True
    if name.replace(".", "").isdigit() or ":" in name:
        from mslaunch.agent.network import addresses

        return not name.startswith("127.") and name in addresses()
    return False
