"""The scheduler's address: --master_addr as an IP address, and whether it is one of this host's.

Only the resolver and the kernel are asked; no packet is sent.  An address that no interface lists (a link-local one) is
this host's if the kernel would send from it to itself, as with msrun.  127.0.0.2 counts as another host.
"""

from __future__ import annotations

import _socket

from mslaunch.errors import LaunchError, UsageError

_NOWHERE = ("0.0.0.0", "::")
_PATIENCE = 1.0  # seconds for a connection within this host


def resolved(host: str, where: str) -> str:
    """The address in its shortest form; raises `UsageError`, which names `where`, if no host has it."""
    found = numeric(host)
    if found in _NOWHERE:
        todo = "give the address at which the hosts reach the scheduler"
        raise UsageError(f"{host} stands for all addresses, so no host can be reached at it", where, todo)
    if found:
        return found
    try:
        rows = _socket.getaddrinfo(host, None, 0, _socket.SOCK_STREAM)
    except (OSError, UnicodeError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not the name of a host"
        todo = "check the spelling, or give the address itself"
        raise UsageError(f"{host!r} cannot be resolved: {why}", where, todo) from None
    return str(rows[0][4][0])


def numeric(host: str) -> str:
    """A numeric address in its shortest form; "" if it is a name."""
    bare, percent, scope = host.partition("%")
    try:
        if ":" in bare:
            return _socket.inet_ntop(_socket.AF_INET6, _socket.inet_pton(_socket.AF_INET6, bare)) + percent + scope
        return _socket.inet_ntop(_socket.AF_INET, _socket.inet_pton(_socket.AF_INET, host))
    except (OSError, UnicodeError, ValueError):
        return ""


def is_localhost(address: str) -> bool:
    """Whether every host means itself by this address."""
    return address in ("127.0.0.1", "::1")


def is_ours(address: str) -> bool:
    """Whether an interface of this host has it."""
    from mslaunch.host.own_addresses import addresses, source_address

    interface = address.partition("%")[2]
    try:
        if interface and not interface.isdigit():
            _socket.if_nametoindex(interface)
    except OSError:
        raise LaunchError(f"there is no interface {interface}", "--master_addr", "ip addr lists them") from None
    return address in addresses() or source_address(address) == address


def answers(address: str, port: int) -> bool:
    """Whether a process listens at a port of one of our addresses."""
    sock = _socket.socket(_socket.AF_INET6 if ":" in address else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        sock.settimeout(_PATIENCE)
        sock.connect((address.partition("%")[0], port))
    except OSError:
        return False
    finally:
        sock.close()
    return True
