"""Ways to other hosts: from which of our addresses one is reached, and which ways mpirun has left behind.

The address by which we reach a host is where it reaches us, as far as can be told from here.  No packet is sent for
that: a UDP socket that is connected tells its own end.  The surprising thing: the name of the other host is looked up,
as ssh is about to do; it is the one place of ours where that happens.
"""

from __future__ import annotations


def adopted_beside(agent: int) -> list[int]:
    """The processes that the guard above an agent has adopted; none where the kernel does not tell."""
    try:
        with open(f"/proc/{agent}/stat", "rb") as file:
            guard = int(file.read().rpartition(b")")[2].split()[1])
        with open(f"/proc/{guard}/task/{guard}/children") as children:
            return [int(word) for word in children.read().split() if int(word) != agent]
    except (OSError, IndexError):
        return []


def address_towards(host: str) -> str:
    """Our address on the way to `host`; "" if nobody knows it or the way there."""
    import socket

    try:
        found = socket.getaddrinfo(host, 22, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return ""
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as sock:
                sock.connect(address)
                return str(sock.getsockname()[0])
        except OSError:
            continue
    return ""
