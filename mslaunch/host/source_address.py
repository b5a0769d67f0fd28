"""The address of this host that another one sees: the source address that the kernel's routing table gives.

No packet is sent: connect(2) of a datagram socket only chooses a route.
"""

from __future__ import annotations

_ANY_PORT = 9
_AI_NUMERICHOST = 4


def source_address(host: str, resolve: bool = False) -> str:
    """Our address on the way to `host`; "" if there is no way.

    `host` is an IP address (IPv6 perhaps with %interface), or, with `resolve`, a name, as ssh would look it up.
    """
    import _socket

    flags = 0 if resolve else _AI_NUMERICHOST
    try:
        found = _socket.getaddrinfo(host, _ANY_PORT, 0, _socket.SOCK_DGRAM, 0, flags)
    except (OSError, UnicodeError):
        return ""
    for family, kind, protocol, _, target in found:
        sock = _socket.socket(family, kind, protocol)
        try:
            sock.connect(target)
            own, _, interface = str(sock.getsockname()[0]).partition("%")
        except OSError:
            continue
        finally:
            sock.close()
        interface = host.partition("%")[2] or interface  # as the caller writes it: eth0, or its number
        return f"{own}%{interface}" if interface else own
    return ""
