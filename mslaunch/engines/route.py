"""From which of our addresses another host is reached: that is where it reaches us, as far as can be told from here.

No packet is sent: a UDP socket that is connected tells its own end.  The name of the other host is looked up, as ssh is
about to do; it is the one place of ours where that happens.
"""

from __future__ import annotations


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
