"""Whether a name means this host, by its own names and the addresses of its interfaces; without DNS.

127.0.0.2 and its like count as other hosts, so that tests can use them as such.
"""

from __future__ import annotations

import os


def is_local(name: str) -> bool:
    """Does `name` mean this host?  Its own names do, and addresses of its interfaces."""
    own = os.uname().nodename
    if name in ("localhost", "127.0.0.1", "::1", "localhost.localdomain", own, own.split(".")[0]):
        return True
    if name.replace(".", "").isdigit() or ":" in name:
        from mslaunch.host.own_addresses import addresses

        return not name.startswith("127.") and name in addresses()
    return False
