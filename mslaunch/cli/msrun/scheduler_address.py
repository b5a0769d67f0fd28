"""The address of the scheduler, from what --master_addr says: a name or an address to an address, and is that ours?

It asks the resolver for names, the kernel for our interfaces, and nobody else: no `ip` program, no packet.  It knows no
options.  The surprising thing is how an address that we do not list (a link-local one) is told to be ours: as in msrun,
if what would be sent there would come from there.  So 127.0.0.2 is another host, as everywhere in this house.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError, UsageError

_NOWHERE = ("0.0.0.0", "::")
_PATIENCE = 1.0  # seconds for a connection within this host


def resolved(host: str, where: str) -> str:
    """The address in its shortest form; raises `UsageError`, which names `where`, for what is that of no host."""
    import _socket

    found = numeric(host)
    if found in _NOWHERE:
        todo = "give the address by which the hosts reach the one with the scheduler"
        raise UsageError(f"{host} stands for all addresses, and nobody can be reached there", where, todo)
    if found:
        return found
    try:
        rows = _socket.getaddrinfo(host, None, 0, _socket.SOCK_STREAM)
    except (OSError, UnicodeError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no name of a host"
        todo = "check the spelling, or give the address itself"
        raise UsageError(f"{host!r} cannot be resolved: {why}", where, todo) from None
    return str(rows[0][4][0])


def numeric(host: str) -> str:
    """The address that these are the digits of, in its shortest form; "" if it is a name."""
    import _socket

    bare, percent, scope = host.partition("%")
    try:
        if ":" in bare:
            return _socket.inet_ntop(_socket.AF_INET6, _socket.inet_pton(_socket.AF_INET6, bare)) + percent + scope
        return _socket.inet_ntop(_socket.AF_INET, _socket.inet_pton(_socket.AF_INET, host))
    except (OSError, UnicodeError, ValueError):
        return ""


def is_loopback(address: str) -> bool:
    """Whether it is whoever says it."""
    return address in ("127.0.0.1", "::1")


def is_ours(address: str) -> bool:
    """Whether an interface of this host has it."""
    import _socket

    from mslaunch.host.own_addresses import addresses
    from mslaunch.host.source_address import source_address

    interface = address.partition("%")[2]
    try:
        if interface and not interface.isdigit():
            _socket.if_nametoindex(interface)
    except OSError:
        raise LaunchError(f"there is no interface {interface}", "--master_addr", "ip addr lists them") from None
    return address in addresses() or source_address(address) == address


def answers(address: str, port: int) -> bool:
    """Whether somebody listens at a port of an address of ours."""
    import _socket

    sock = _socket.socket(_socket.AF_INET6 if ":" in address else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        sock.settimeout(_PATIENCE)
        sock.connect((address.partition("%")[0], port))
    except OSError:
        return False
    finally:
        sock.close()
    return True
