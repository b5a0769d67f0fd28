"""The network interface by which this host reaches another, which Gloo wants by name."""

from __future__ import annotations

import fcntl

from mslaunch.faststd import socket, struct
from mslaunch.host.own_addresses import source_address

_AF_INET, _AF_INET6, _SOCK_DGRAM = 2, 10, 2
_SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface


def interface_towards(address: str) -> str:
    """The interface that has the address of ours that the host with `address` sees; "" if none has.

    `address` may be our own.
    """
    import _socket

    own = source_address(address).partition("%")[0]
    if ":" in own:
        return _with_ipv6(_socket.inet_pton(_AF_INET6, own).hex())
    names = [name for _, name in _socket.if_nameindex()]
    return next((name for name in names if _ipv4_of(name) == own), "") if own else ""


def _ipv4_of(name: str) -> str:
    """struct ifreq: 16 bytes of the name, then a sockaddr_in, whose address is at offset 4."""
    import _socket

    sock = socket(_AF_INET, _SOCK_DGRAM)
    try:
        found = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, struct.pack("40s", name.encode()[:15]))
    except OSError:
        return ""
    finally:
        sock.close()
    return _socket.inet_ntop(_AF_INET, found[20:24])


def _with_ipv6(digits: str) -> str:
    """/proc/net/if_inet6: address, index, prefix length, scope, flags, name."""
    try:
        with open("/proc/net/if_inet6") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    return next((line[5] for line in lines if line[0] == digits), "")
